"""Programs, mounts and files, none of which may hang a call."""
