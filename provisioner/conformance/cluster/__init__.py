"""The worked example in a cluster that the user names."""
