"""What is done in a cluster, in this order, and how long the sandbox takes for it."""

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.conformance.probe import Usage, VolumeUse

ALL = "cluster"
"""By this name ``--only`` means all steps, and the journal counts how often they were begun."""

SIZE, GROWN = "1Gi", "2Gi"
_GROWN_GIB = 2

# Two volumes, the second one restored at the size of the first, and a snapshot of it.
USES = Usage(volumes=(VolumeUse(_GROWN_GIB, count=2),), snapshots_gib=_GROWN_GIB, seconds=300)

SANDBOX = "2026-11-23, one run, xfs, 2 busy cores, strict EC2 with AWS's latency and quotas"


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        name: of lower-case words and dashes; unique, also among the rules.
        sentence: what has to be so.
        sandbox_s: how long it takes in the sandbox; see ``SANDBOX``.
        within_s: after so long it has failed.
        needs: the steps without which it cannot be done.
    """

    name: str
    sentence: str
    sandbox_s: float
    within_s: float
    needs: tuple[str, ...] = ()


WEBHOOK = Step(
    "cluster-webhook", "A StorageClass that cannot work is refused, with the reason", 0.03, 30
)
PODS = Step("cluster-pods", "A pod without a volume runs on each node", 2.12, 180)
WRITE = Step(
    "cluster-write",
    "A pod with a new claim runs, and writes 20 MiB",
    9.14,
    300,
    (PODS.name,),
)
MOVE = Step(
    "cluster-move",
    "A pod on another node of the zone reads the same bytes",
    10.79,
    300,
    (WRITE.name,),
)
GROW = Step(
    "cluster-grow",
    "A running pod sees its file system grow, with the same bytes in it",
    8.32,
    600,
    (WRITE.name,),
)
SNAPSHOT = Step(
    "cluster-snapshot", "A snapshot of the volume becomes ready", 8.99, 900, (WRITE.name,)
)
RESTORE = Step(
    "cluster-restore",
    "A claim made from the snapshot has the bytes of that moment, and nothing of later",
    7.16,
    600,
    (SNAPSHOT.name,),
)
DELETE = Step(
    "cluster-delete",
    "With their claims and the snapshot, all volumes and snapshots are gone from EC2",
    6.65,
    600,
    (WRITE.name,),
)
STEPS = (WEBHOOK, PODS, WRITE, MOVE, GROW, SNAPSHOT, RESTORE, DELETE)
BY_NAME: Mapping[str, Step] = {step.name: step for step in STEPS}
