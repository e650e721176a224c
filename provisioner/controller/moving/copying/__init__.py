"""A copy of a claim's files by a pod, for a smaller volume or another file system."""
