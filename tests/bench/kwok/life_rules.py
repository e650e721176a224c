"""What a claim and its pod wait for, and what comes next."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.bench.kwok.mirror import Thing

LATE_S = 60.0
"""What waits for longer is behind."""

LATE_ON_DEAD_NODE_S = 300.0
"""Kubernetes itself needs minutes for a node that was deleted: a minute until its pods are removed,
then ours removes what is attached there, and in another one the attach/detach controller has seen it
(tests/cluster/dead_nodes.py)."""


class Wait(StrEnum):
    """What a life waits for."""

    NOTHING = ""
    BOUND = "bound"
    ATTACHED = "attached"
    DETACHED = "detached"
    GONE = "gone"


class Step(StrEnum):
    """What somebody does next about it."""

    WAIT = "wait"
    AWAIT_ATTACHMENT = "await attachment"
    SAY_MOUNTED = "say mounted"
    CREATE_POD = "create pod"
    REST = "rest"
    REMOVE_POD = "remove pod"
    END = "end"


@dataclass(eq=False, slots=True)
class Life:
    """A claim, and its pod if it wants one.

    Attributes:
        number: of claim and pod.
        key: namespace and name of the claim.
        uid: of the claim.
        wants_pod: whether it has one while nothing happens to it.
        node: on which its volume is mounted, "" while it is on none.
        volume_id: that is mounted there.
        waits_for: what.
        since_s: on the monotonic clock.
        may_take_s: before it is behind.
        is_deleting: somebody deletes it.
        is_busy: somebody acts on it just now.
    """

    number: int
    key: str
    uid: str = ""
    wants_pod: bool = True
    node: str = ""
    volume_id: str = ""
    waits_for: Wait = Wait.NOTHING
    since_s: float = 0.0
    may_take_s: float = LATE_S
    is_deleting: bool = False
    is_busy: bool = False

    def is_late(self, now_s: float) -> bool:
        """Whether it is behind."""
        return bool(self.waits_for) and now_s - self.since_s > self.may_take_s


def next_step(
    life: Life,
    claim: Thing | None,
    pod: Thing | None,
    attachments: Sequence[Thing],
    *,
    has_volume: bool,
) -> Step:
    """What is to be done, by what the API server has.

    Args:
        life: of whom.
        claim: its own; None if there is none with its UID.
        pod: that uses it.
        attachments: of its volume, to whatever node.
        has_volume: whether its PersistentVolume is there.
    """
    match life.waits_for:
        case Wait.BOUND if claim is not None and claim.status.phase == "Bound":
            return Step.AWAIT_ATTACHMENT
        case Wait.ATTACHED if pod is not None and _runs(pod, attachments):
            return Step.SAY_MOUNTED
        case Wait.ATTACHED if pod is None:
            return Step.CREATE_POD  # evicted with its node
        case Wait.DETACHED | Wait.GONE if pod and not pod.metadata.deletion_timestamp:
            return Step.REMOVE_POD
        case Wait.DETACHED if pod is None and not attachments:
            return Step.CREATE_POD if life.wants_pod else Step.REST
        case Wait.GONE if claim is None and not attachments and not has_volume:
            return Step.END
    return Step.WAIT


def _runs(pod: Thing, attachments: Sequence[Thing]) -> bool:
    return pod.status.phase == "Running" and any(
        each.status.attached and each.spec.node_name == pod.spec.node_name for each in attachments
    )


def share_of(volumes: int, minutes: float) -> float:
    """Events a second: an hour's churn, 5 % of the claims, in the run; never less than 20 a minute.

    Fewer would leave the troubles of a small cluster without anybody who suffers by them.
    """
    return max(volumes * 0.05 / (minutes * 60), 20 / 60)


def nodes_each_s(nodes: int, minutes: float) -> float:
    """Seconds between two nodes that are replaced: a twentieth of them in the run, at least six."""
    return minutes * 60 / max(6.0, nodes * 0.05)
