"""The Kubernetes edge: client, informer, keyed queue, events, lease."""
