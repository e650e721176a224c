"""The network of a sandbox's real nodes: a network namespace of its own, and ways in and out."""
