"""Decide which new pods are held back, because a VolumeMove holds one of their claims.

Such a pod gets a scheduling gate, which the controller removes once no move holds its claims any
more. Until then it has no node: the claim can be deleted and created again, and the scheduler then
finds a node in the zone of the new volume.
Source: Kubernetes 1.36 API reference, core/v1 Pod ``schedulingGates``; a pod with both a gate and a
node is refused (validation ``ValidatePodSpec``), and pvc-protection counts pods with a node only.
"""

from collections.abc import Callable, Iterator

from msgspec import structs

from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.pod import PodVolume
from provisioner.model.volume_move import GATE
from webhook.model.pod import Pod
from webhook.model.review import Answer, Json, allow

# The move that holds a claim, both as ``namespace/name``; "" for none.
HolderOf = Callable[[str], str]


def hold(pod: Pod, holder_of: HolderOf, namespace: str) -> Answer:
    """Give a pod the gate if a move holds one of its claims, and name that move on it."""
    if pod.spec is None or pod.node_name or GATE in pod.spec.gates:
        return allow("NothingToDo")
    found = next(_held(pod, holder_of, namespace), None)
    if found is None:
        return allow("NothingToDo")
    claim_name, move = found
    warning = (
        f'{pod.title}: VolumeMove {move} is giving claim "{claim_name}" another volume, so the pod '
        "starts once that has ended"
    )
    return allow("HeldForMove", warnings=[warning], patch=list(_patch(pod, move)))


def _patch(pod: Pod, move: str) -> Iterator[Json]:
    gate = {"name": GATE}
    if pod.spec is not None and pod.spec.scheduling_gates:
        yield {"op": "add", "path": "/spec/schedulingGates/-", "value": gate}
    else:
        yield {"op": "add", "path": "/spec/schedulingGates", "value": [gate]}
    if pod.metadata is None:
        return
    if pod.metadata.annotations is None:
        yield {"op": "add", "path": "/metadata/annotations", "value": {HELD_FOR_MOVE: move}}
    else:
        key = HELD_FOR_MOVE.replace("~", "~0").replace("/", "~1")
        yield {"op": "add", "path": f"/metadata/annotations/{key}", "value": move}


def without_held(pod: Pod, holder_of: HolderOf, namespace: str) -> Pod:
    """A pod without its claims that a move holds: in which zone they will be is not known yet.

    One that has its node already is not held back, so all of it counts.
    """
    if pod.spec is None or pod.node_name:
        return pod
    held = {name for name, _ in _held(pod, holder_of, namespace)}
    if not held:
        return pod
    left = [each for each in pod.volumes if _claim_name(each) not in held]
    return structs.replace(pod, spec=structs.replace(pod.spec, volumes=left))


def _held(pod: Pod, holder_of: HolderOf, namespace: str) -> Iterator[tuple[str, str]]:
    """Names of claims, each with its move; that of an ephemeral volume goes with its pod."""
    for volume in pod.volumes:
        name = _claim_name(volume)
        move = holder_of(f"{namespace}/{name}") if name else ""
        if move:
            yield name, move


def _claim_name(volume: PodVolume) -> str:
    source = volume.persistent_volume_claim
    return (source and source.claim_name) or ""
