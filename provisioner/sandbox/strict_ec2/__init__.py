"""A strict EC2: moto with the rules that a provisioner can break.

moto keeps EBS volumes but not their rules: no client tokens, no zones, no exclusive attachments,
no states, no throttling, no paging. Here its classes are patched in place (``patches``) and the
calls about volumes and tags are answered by rules of ours over moto's own objects, so that
everything else (instances, snapshots, KMS, STS) stays moto's and sees the same volumes.

One request comes in at ``front`` (HTTP, counting, latency, throttling, faults), is carried out by
one of ``actions`` (``volumes``, ``attachments``, ``describe``, ``tags``) or by moto, and leaves as
XML. All of it runs on one event loop and no rule awaits anything, so each call is atomic: the loop
is the lock. Time is the ``World``'s clock, which ``POST /_control {"advance_s": …}`` moves on.

Must not be imported by the product. ``client`` and ``instances`` are what others use; neither loads
moto.
"""
