"""What volumes are made from: snapshots, and other volumes in the same or another zone."""
