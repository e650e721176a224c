"""The probes, by subject, each beside the rule that it may show wrong."""
