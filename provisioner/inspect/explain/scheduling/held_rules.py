"""A pod that the webhook holds back for a VolumeMove: which one, how far it is, and what helps."""

from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof
from provisioner.inspect.explain.view_rules import View
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.shell_words import shell
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.volume_move import ABORTABLE, GATE

_REMOVE = '{{"spec": {{"schedulingGates": [{{"name": "{}", "$patch": "delete"}}]}}}}'


def move_of(pod: WatchedPod) -> str:
    """The VolumeMove that holds a pod back, as namespace/name; "" if none does, or is named."""
    return pod.annotations.get(HELD_FOR_MOVE, "") if is_held(pod) else ""


def is_held(pod: WatchedPod) -> bool:
    """Whether a pod has the scheduling gate of moves."""
    return GATE in pod.spec.gates


def chain(view: View, pod: WatchedPod) -> Chain:
    """What a pod with the gate waits for."""
    move, name = view.move, move_of(pod)
    gate = Proof(f"pod {pod.key}, spec.schedulingGates", GATE)
    if move is None or not move.holds_pods:
        return Chain((_left(view, pod, gate),))
    phase, message = move.told.phase, move.told.message
    proof = Proof(
        f"volumemove {name}, status", f"phase {phase}: {message}" if message else f"phase {phase}"
    )
    return Chain(
        (
            Link(
                Cause.HELD_FOR_MOVE,
                f"VolumeMove {name} is giving claim {move.claim_key} another volume, and is in the "
                f"phase {phase}; until it is past Swapping, no new pod of the claim starts.",
                proof,
                "the controller, which carries the move on and then removes the gate",
                "If it does not go on: do what its status.message says"
                + (", or abort it." if phase in ABORTABLE else "."),
                shell("kubectl ebs move --resume {}", name),
            ),
            Link(
                Cause.UNSCHEDULABLE,
                f"So pod {pod.key} is held back, without a node.",
                gate,
            ),
        ),
        waits=True,
    )


def _left(view: View, pod: WatchedPod, gate: Proof) -> Link:
    """Nothing holds the pod back any more, or it cannot be known."""
    move, name = view.move, move_of(pod)
    who = "a controller that runs with --volume-moves, which removes the gate within seconds"
    remedy = "If the gate stays, no such controller works: start one, or remove the gate by hand."
    if not view.serves_moves:
        what = "this cluster has no VolumeMoves: their CustomResourceDefinition is not installed"
        if name:
            what = f"VolumeMove {name} does not exist any more; {what}"
        who = "you; without VolumeMoves, no controller removes the gate"
        remedy = "Nothing moves the pod's claims any more: remove the gate by hand."
    elif move is not None:
        what = f"VolumeMove {name} holds its claims no more (phase {move.told.phase or 'none yet'})"
    elif name and not view.read("volumemoves"):
        what = f"VolumeMove {name} cannot be read"
    elif name:
        what = f"VolumeMove {name} does not exist any more"
    else:
        what = "no VolumeMove is named on it"
    namespace = pod.metadata.namespace
    command = "kubectl -n {} patch pod {} --type=strategic -p {}"
    return Link(
        Cause.HELD_FOR_MOVE,
        f"Pod {pod.key} has the scheduling gate of VolumeMoves, and {what}.",
        gate,
        who,
        remedy,
        shell(command, namespace, pod.name, _REMOVE.format(GATE)),
    )
