"""How commands print."""
