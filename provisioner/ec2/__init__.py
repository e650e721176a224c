"""The AWS edge: calls, limiter, watchers, volumes, attachments, modifications, snapshots."""
