"""What several stories write to a claim, tell about it and read from its data source."""
