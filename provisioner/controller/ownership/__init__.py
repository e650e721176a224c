"""Whose volumes these are: what a controller before us began, and whether EC2 is our own."""
