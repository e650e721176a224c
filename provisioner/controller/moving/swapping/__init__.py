"""The exchange: the claim is deleted, and created again with its other volume."""
