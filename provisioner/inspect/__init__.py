"""Commands that look and change nothing: classes, volumes."""
