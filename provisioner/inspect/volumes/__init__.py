"""Volumes, beside what their claims request."""
