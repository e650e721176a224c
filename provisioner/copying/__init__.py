"""The copy of files from one volume to another, which a pod of a VolumeMove runs."""
