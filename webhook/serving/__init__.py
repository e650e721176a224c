"""The HTTPS server, and one answer in time for each review."""
