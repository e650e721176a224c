"""What the webhook's rules speak of: reviews, patches, node affinity, projections. Pure."""
