"""The zone of a new volume."""
