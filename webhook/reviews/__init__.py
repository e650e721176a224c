"""One review and its answer."""
