"""What volumes cost, as a metric."""
