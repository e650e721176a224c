"""The device of a volume."""
