"""Reads what an explanation is made of."""
