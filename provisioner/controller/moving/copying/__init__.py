"""A pod that copies a claim's files to another volume, or checks the new one, before the swap."""
