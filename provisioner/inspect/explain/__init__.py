"""Why an object does not work: one chain of causes, the first one first."""
