"""The CSI calls: socket, registration, requests."""
