"""What the webhook's rules speak of: reviews, patches, pods, projections. Pure."""
