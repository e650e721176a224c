"""Moving: a claim gets another volume with the same data (VolumeMove, alpha)."""
