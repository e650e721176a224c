"""From a claim to its volume and persistent volume."""
