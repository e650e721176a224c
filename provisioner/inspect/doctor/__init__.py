"""What in this cluster and account fails, or will fail before anybody sees it."""
