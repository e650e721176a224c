"""The pods that use a claim while it is moved: stopped, held back, and let go on."""
