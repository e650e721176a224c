"""What is told of dead nodes: each change of ours, and what EC2 does not know."""

from collections.abc import Collection, Iterable, Sequence

import structlog

from provisioner.decide.dead_node import Declare, Leave, Step, TakeBack
from provisioner.kube.events import EventRecorder, Regarding
from provisioner.kube.resources import NODES
from provisioner.model.node import Node
from provisioner.model.taint import OUT_OF_SERVICE

_UNKNOWN_TOLD_AFTER_S = 300.0
_MOST_NAMED = 8  # an event has 1024 characters, and each of these names 68

log = structlog.get_logger(__name__)


class DeadNodeWords:
    """Events on Nodes, and the log."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._unknown_since_s: dict[str, float] = {}  # by UID of node
        self._told: set[str] = set()

    def done(self, node: Node, step: Step) -> None:
        """Tell of a change that was written."""
        match step:
            case Declare(instances=instances):
                self._declared(node, ", ".join(instances))
            case TakeBack(why=why):
                self._taken_back(node, why)
            case Leave():
                return

    def _declared(self, node: Node, instances: str) -> None:
        log.warning("a node is out of service", node=node.name, instance=instances)
        self._events.record(
            Regarding.of(node, NODES.kind),
            warning=True,
            reason="InstanceTerminated",
            message=f"EC2 says that instance {instances} is terminated: added the taint "
            f"{OUT_OF_SERVICE.key}, so that pods and volumes leave this node at once",
        )

    def _taken_back(self, node: Node, why: str) -> None:
        log.info("a node is in service again", node=node.name, why=why)
        self._events.record(
            Regarding.of(node, NODES.kind),
            warning=False,
            reason="InService",
            message=f"removed the taint {OUT_OF_SERVICE.key} again: {why}",
        )

    def unknown(
        self, node: Node, unknown: Collection[str], attachments: Sequence[str], now_s: float
    ) -> None:
        """EC2 forgets an instance about an hour after its end; a wrong Region never knew it.

        Args:
            node: for which they are named.
            unknown: the instances that EC2 does not know.
            attachments: those by which alone they are named; deleting the Node would not help then.
            now_s: monotonic.
        """
        if not unknown:
            self._unknown_since_s.pop(node.uid, None)
            return
        since_s = self._unknown_since_s.setdefault(node.uid, now_s)
        if now_s - since_s < _UNKNOWN_TOLD_AFTER_S or node.uid in self._told:
            return
        self._told.add(node.uid)
        self._events.record(
            Regarding.of(node, NODES.kind),
            warning=True,
            reason="InstanceUnknown",
            message=f"EC2 knows no instance {', '.join(sorted(unknown))} in this account and "
            f"Region, which is no proof that it has ended; {_what_helps(attachments)}",
        )

    def forget_all_but(self, suspects: Iterable[Node]) -> None:
        """Nodes that are no longer looked at can be told about anew."""
        uids = {node.uid for node in suspects}
        self._told &= uids
        self._unknown_since_s = {
            uid: since_s for uid, since_s in self._unknown_since_s.items() if uid in uids
        }


def _what_helps(attachments: Sequence[str]) -> str:
    if not attachments:
        return "if it has, delete this Node"
    more = len(attachments) - _MOST_NAMED
    return (
        "only VolumeAttachments name it, made for a machine that had this Node's name: if it has, "
        f"kubectl delete volumeattachment {' '.join(attachments[:_MOST_NAMED])}"
        f"{f' (and {more} more)' if more > 0 else ''}"
    )
