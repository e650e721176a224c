"""Flows: read, decide, act, record. No rule of its own lives here."""
