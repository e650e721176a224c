"""The tags of volumes."""
