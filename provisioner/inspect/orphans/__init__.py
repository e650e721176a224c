"""Volumes that no object names: listed, planned, and deleted by a plan."""
