"""A node that runs: containerd, kubelet, the node plugin, and disks that EC2 attaches to it."""
