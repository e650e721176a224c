"""Names under which the driver and its predecessors are known."""

EBS_DRIVER = "ebs.csi.aws.com"
IN_TREE_DRIVER = "kubernetes.io/aws-ebs"

# The driver of EKS Auto Mode, whose volumes may be beside ours in one pod.
# Source: EKS user guide "Create a storage class" (read 2026-11-22).
AUTO_MODE_DRIVER = "ebs.csi.eks.amazonaws.com"
