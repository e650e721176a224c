"""Names under which the driver and its predecessors are known."""

EBS_DRIVER = "ebs.csi.aws.com"
IN_TREE_DRIVER = "kubernetes.io/aws-ebs"
