"""This node: its instance, its limit, its end."""
