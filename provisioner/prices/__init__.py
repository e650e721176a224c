"""What EBS costs: prices by Region, and amounts by them."""
