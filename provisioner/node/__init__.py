"""The node plugin: formats, mounts, grows and measures volumes for the kubelet beside it."""
