"""``ebs-provisioner conformance``: is EC2 as this product assumes? Asked of any endpoint."""
