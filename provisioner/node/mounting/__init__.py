"""Stage, publish, grow and unmount."""
