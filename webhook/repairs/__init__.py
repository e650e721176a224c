"""What was let through is corrected."""
