"""``kubectl ebs move``: ask for a VolumeMove, look at its plan, follow it, abort it."""
