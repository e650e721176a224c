"""What the pods of a claim need besides it: their other claims, and a node that takes them."""
