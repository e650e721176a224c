"""ebs-provisioner: EBS volumes for Kubernetes from one small process.

See README.md for the architecture: ``model`` and ``decide`` are pure, ``kube``, ``ec2`` and
``node`` are the edges, ``reconcile`` connects them, ``sandbox`` runs it all on one machine.
"""
