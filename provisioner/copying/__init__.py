"""What the pod of a VolumeMove runs: the copy of files, or a look at the new volume."""
