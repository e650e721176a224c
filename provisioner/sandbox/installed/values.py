"""The values that the chart is installed with in a sandbox."""

from __future__ import annotations

from typing import Any, Final

from provisioner.sandbox.installed.archive import ImageArchive
from provisioner.sandbox.real_node.node import LABEL

KEYS_SECRET: Final = "ebs-sandbox-keys"  # noqa: S105 -- the Secret's name
"""With the access keys that the strict EC2 accepts."""

_REAL: Final = {LABEL: "real"}
_DISKS: Final = "sys-dev-block"


def of(image: ImageArchive, ec2_url: str, cluster_id: str, *, webhook: bool) -> dict[str, Any]:
    """Return the values for an image.

    Args:
        image: that the nodes have.
        ec2_url: of the strict EC2, as pods reach it.
        cluster_id: that volumes are tagged with.
        webhook: whether the webhook is installed too.
    """
    env = [{"name": "AWS_ENDPOINT_URL_EC2", "value": ec2_url}]
    # Other nodes only pretend to run pods.
    program = {"nodeSelector": _REAL, "env": env}
    return {
        "image": {"repository": image.repository, "tag": image.tag, "pullPolicy": "Never"},
        "awsAccessSecret": {"name": KEYS_SECRET},
        "controller": {**program, "k8sTagClusterId": cluster_id},
        "webhook": {**program, "enabled": webhook},
        "node": {
            "nodeSelector": _REAL,
            # A container has a sysfs of its own, which shows the machine's disks; a real node's own
            # are loop devices, and what NVMe says of a volume is in a folder of the node.
            "volumes": [{"name": _DISKS, "hostPath": {"path": "/sys/dev/block"}}],
            "volumeMounts": [{"name": _DISKS, "mountPath": "/sys/dev/block", "readOnly": True}],
        },
        "helmTester": {"nodeSelector": _REAL},
    }
