"""What commands read of the API server and of EC2, and what they could not read."""
