"""Metrics of the node plugin and of the volumes on its node."""
