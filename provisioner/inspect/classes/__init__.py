"""StorageClasses: what one does, and what is wrong with it."""
