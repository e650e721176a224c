"""What happened to a claim, from objects, events and EC2."""
