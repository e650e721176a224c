"""Size, type, IOPS, throughput and tags of existing volumes."""
