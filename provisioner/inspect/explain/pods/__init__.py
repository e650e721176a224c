"""What holds a pod back: its own containers, and who has its volume elsewhere."""
