"""The webhook's certificates and configurations."""
