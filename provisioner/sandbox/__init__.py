"""A real control plane and a strict EC2 in a box (the ``sandbox`` extra)."""
