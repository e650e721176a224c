"""Commands that look: classes, volumes, and why something does not work."""
