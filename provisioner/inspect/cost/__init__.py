"""What volumes and snapshots cost, whose they are, and what would cost less."""
