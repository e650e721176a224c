"""How long a node that cannot grow a file system is left alone before it is asked again.

Kubelet says NodeResizeInfeasible and acts no more until the status is NodeResizePending. Said back
at once, each would answer the other for ever.
"""

from dataclasses import dataclass

from provisioner.decide.expand import ResizeStatus
from provisioner.model.claim import Claim
from provisioner.reconcile.modify_memory import loop_s

_PAUSE_S, _PAUSE_MOST_S = 5.0, 1800.0


@dataclass(slots=True)
class _Refusal:
    """``until_s``: None while the node is asked again; ``request`` is the size that was wanted."""

    request: str
    until_s: float | None
    times: int = 1


class NodePauses:
    """The claims whose node has refused, by UID."""

    def __init__(self) -> None:
        self._refusals: dict[str, _Refusal] = {}

    def left_s(self, claim: Claim) -> float:
        """Seconds until its node may be asked again, 0.0 for now; to be told of every status."""
        uid, status, request = claim.uid, claim.resize_status, claim.requested_storage
        known = self._refusals.get(uid)
        if status != ResizeStatus.NODE_INFEASIBLE:
            if not status:
                self.forget(uid)
            elif known is not None:
                known.until_s = None
            return 0.0
        if known is None:
            known = self._refusals[uid] = _Refusal(request, loop_s() + _PAUSE_S)
        elif known.request != request:
            known.request, known.times, known.until_s = request, 0, loop_s()
        elif known.until_s is None:
            pause_s = min(_PAUSE_S * 4.0 ** min(known.times, 8), _PAUSE_MOST_S)
            known.until_s, known.times = loop_s() + pause_s, known.times + 1
        return max(0.0, (known.until_s or 0.0) - loop_s())

    def forget(self, uid: str) -> None:
        """It has grown, or the claim is gone."""
        self._refusals.pop(uid, None)
