"""What the controller writes to Nodes: taints, limits, labels; and pods of dead nodes."""
