"""How full the volumes of claims are, and when they will be full."""
