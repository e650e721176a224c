"""The admission webhook: zone labels and node affinity on every EBS volume.

It is not built yet; the distribution reserves the package.
"""
