"""Volumes to nodes and back."""
