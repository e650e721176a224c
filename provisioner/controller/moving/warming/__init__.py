"""Snapshots of a volume before the pods that use it are stopped for its move."""
