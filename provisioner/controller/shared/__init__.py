"""What the flows share and what knows nothing of them: settings, caches, services."""
