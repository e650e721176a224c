"""Nouns and their rules: pure, no I/O, shared by the provisioner and the webhook."""
