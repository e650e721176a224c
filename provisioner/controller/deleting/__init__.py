"""Volumes that nobody needs any more."""
