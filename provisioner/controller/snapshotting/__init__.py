"""VolumeSnapshotContents and their snapshots in EC2."""
