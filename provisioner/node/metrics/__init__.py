"""What a node tells about its volumes."""
