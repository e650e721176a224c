"""Whether a volume may be formatted, and doing it."""
