"""The AWS edge: calls, limiter, watcher, volumes, attachments."""
