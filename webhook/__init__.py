"""The admission webhook: zone labels and node affinity on every EBS volume."""
