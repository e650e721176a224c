"""What a node lacks, told finely."""
