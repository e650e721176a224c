"""Why the scheduler finds no node for a pod."""
