"""What a StorageClass means: parameters, in-tree classes, IOPS. Pure."""
