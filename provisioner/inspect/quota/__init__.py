"""How much of EBS's quotas is in use."""
