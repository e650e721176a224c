"""ebs-provisioner: EBS volumes for Kubernetes from one small process.

See docs/design/architecture.md: ``model`` and ``decide`` are pure, ``kube``, ``ec2`` and
``node`` are the edges, ``reconcile`` connects them, ``sandbox`` runs it all on one machine.
"""
