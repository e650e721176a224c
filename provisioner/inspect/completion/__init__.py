"""Completion: what may follow, for the shells' own scripts and for kubectl."""
