"""Decide which owners of pods are scaled down for a move, how far, and when they come back.

Each owner's former number is in the move's status before it is scaled down.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from provisioner.controller.moving.phase_rules import COUNTS, Await
from provisioner.model.sentences import listed
from provisioner.model.volume_move import MoveConsumer, Phase, VolumeMove
from provisioner.model.workload import STATEFUL_SET, OwnerReference, Workload

# Whoever scales it up again after that would do so for ever.
_MOST_TIMES = 3
_BY_HAND = "with consumers.policy Wait"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A pod that uses the claim, and who makes it.

    ``claims``: keys of all that it uses; ``owner``: the last one of its owners that can be scaled,
    or its only one; ``workload``: that owner, None if it is gone or cannot be scaled; ``above``:
    who controls it in turn; ``has_ended``: it is there only until somebody deletes it.
    """

    name: str
    claims: tuple[str, ...] = ()
    owner: OwnerReference | None = None
    workload: Workload | None = None
    above: OwnerReference | None = None
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """Record the consumer, then scale it to its ``scale_to``."""

    consumer: MoveConsumer


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It cannot be scaled down, or does not stay so; the message says why."""

    message: str


def refused(consumers: Sequence[Consumer]) -> str | None:
    """Why the owners of these pods are not scaled down, in one sentence; None if they can be."""
    return next((said for each in consumers if (said := _refused(each)) is not None), None)


def _refused(consumer: Consumer) -> str | None:
    owner, workload = consumer.owner, consumer.workload
    is_deleted_with_it = owner is not None and owner.is_scaled and owner.kind == STATEFUL_SET
    if consumer.has_ended and not is_deleted_with_it:
        return ended(consumer.name)
    if owner is None:
        return f"pod {consumer.name} has no owner to be scaled down: delete it yourself, {_BY_HAND}"
    who = f"{owner.kind} {owner.name}"
    if not owner.is_scaled:
        return (
            f"pod {consumer.name} belongs to {who}, which cannot be scaled down: end it yourself, "
            f"{_BY_HAND}"
        )
    if consumer.above is not None:
        return (
            f"{who} belongs to {consumer.above.kind} {consumer.above.name}, which would scale it "
            f"up again: stop that yourself, {_BY_HAND}"
        )
    return _deletes_claims(owner.name) if workload is not None and workload.deletes_claims else None


def ended(pod: str) -> str:
    """What to do about a pod that has ended: to scale its owner down does not delete it.

    A StatefulSet's does. Source: Kubernetes 1.36 pkg/controller replica_set.go FilterActivePods,
    stateful_set_control.go processCondemned.
    """
    return f"pod {pod} has ended, and {COUNTS}: do that first"


def _deletes_claims(name: str) -> str:
    return (
        f"StatefulSet {name} deletes the claims of replicas that are scaled away: set its "
        "persistentVolumeClaimRetentionPolicy.whenScaled to Retain first"
    )


def to_scale(consumers: Sequence[Consumer]) -> list[MoveConsumer]:
    """The owners that are scaled down, each as far as all of its pods here require.

    A StatefulSet gives its highest replicas away first: for replica 1 to end, 2 has to go as well.
    """
    found: dict[str, MoveConsumer] = {}
    for each in consumers:
        owner, workload = each.owner, each.workload
        if owner is None or workload is None or _refused(each) is not None:
            continue
        before = found.get(owner.uid)
        rest = _rest(each.name, owner, workload)
        if before is None or rest < before.scale_to:
            found[owner.uid] = MoveConsumer(
                kind=owner.kind, name=owner.name, uid=owner.uid, scale_to=rest
            )
    return list(found.values())


def _rest(pod: str, owner: OwnerReference, workload: Workload) -> int:
    """How many replicas may stay for a pod to end."""
    head, _, number = pod.rpartition("-")
    if owner.kind != STATEFUL_SET or head != owner.name or not number.isdecimal():
        return 0
    return max(0, int(number) - workload.first_ordinal)


def merged(known: Sequence[MoveConsumer], found: Sequence[MoveConsumer]) -> list[MoveConsumer]:
    """Those known, and those found since."""
    have = {each.uid for each in known}
    return [*known, *(each for each in found if each.uid not in have)]


def lowered(
    consumer: MoveConsumer, found: Sequence[MoveConsumer], workload: Workload | None
) -> MoveConsumer:
    """A known owner, to be scaled as far as its pods require by now; what it had stays recorded."""
    rest = min((each.scale_to for each in found if each.uid == consumer.uid), default=None)
    if rest is None or rest >= consumer.scale_to:
        return consumer
    lower = structs.replace(consumer, scale_to=rest)
    if workload is None or consumer.replicas is None or workload.replicas != consumer.scale_to:
        return lower
    # It is as the move has left it: another request of ours, and nobody else's number.
    return structs.replace(lower, generation=workload.metadata.generation)


def stopping(consumers: Sequence[Consumer]) -> list[str]:
    """The names of the pods that stop: those that use the claim, and the replicas above them."""
    names = {each.name for each in consumers}
    rests = {each.uid: each.scale_to for each in to_scale(consumers)}
    for each in consumers:
        owner, workload = each.owner, each.workload
        if owner is not None and workload is not None and owner.kind == STATEFUL_SET:
            rest = rests.get(owner.uid, workload.replicas)
            first = workload.first_ordinal
            names |= {f"{owner.name}-{first + at}" for at in range(rest, workload.replicas)}
    return sorted(names)


def notes(consumers: Sequence[Consumer]) -> list[str]:
    """What whoever scales the owners down by hand should know before the move."""
    if not consumers:
        return []
    used = listed([each.name for each in consumers], "and")
    said = [f"it waits until pods {used} are gone: scale their owner down"]
    deleting = {
        each.workload.name
        for each in consumers
        if each.workload is not None and each.workload.deletes_claims
    }
    return said + [_deletes_claims(name) for name in sorted(deleting)]


def stops(consumers: Sequence[Consumer]) -> list[str]:
    """Which owners the move scales down, and which pods stop for that alone; sentences."""
    now = {
        each.owner.uid: each.workload.replicas
        for each in consumers
        if each.owner is not None and each.workload is not None
    }
    said = [
        _scaled(each, now[each.uid])
        for each in to_scale(consumers)
        if now[each.uid] > each.scale_to
    ]
    more = set(stopping(consumers)) - {each.name for each in consumers}
    if more:
        pods = listed(more, "and")
        said.append(f"pods {pods} stop as well: a StatefulSet ends its highest replicas first")
    return said


def _scaled(consumer: MoveConsumer, replicas: int) -> str:
    return (
        f"{consumer.kind} {consumer.name} is scaled from {replicas} to {consumer.scale_to}, and "
        "back after the swap"
    )


def is_planned(consumer: MoveConsumer, stops: Sequence[str]) -> bool:
    """Whether the plan names an owner; ``stops``: the plan's, each begins with kind and name."""
    return any(said.split()[:2] == [consumer.kind, consumer.name] for said in stops)


def announced(consumer: MoveConsumer, *, is_planned: bool) -> str:
    """What is said of a recorded owner before it is scaled down, as a sentence."""
    said = _scaled(consumer, consumer.replicas or 0)
    if is_planned:
        return said
    return f"{said}; its pods use the claim, and the plan does not name it"


def next_stop(consumer: MoveConsumer, workload: Workload | None) -> ScaleDown | GiveUp | None:
    """What has an owner end its pods; None if it is as far down as it has to be, or gone.

    As long as its generation is the recorded one, what was recorded was not carried out.
    """
    if workload is None or workload.uid != consumer.uid:
        return None
    if workload.replicas <= consumer.scale_to:
        return None
    if workload.deletes_claims:
        return GiveUp(_deletes_claims(consumer.name))
    generation = workload.metadata.generation
    if consumer.replicas is not None and consumer.generation == generation:
        return ScaleDown(consumer)
    if consumer.times >= _MOST_TIMES:
        return GiveUp(
            f"{consumer.kind} {consumer.name} was scaled down {consumer.times} times, and somebody "
            "scaled it up each time: stop what does so (an autoscaler, GitOps), then scale it down"
        )
    return ScaleDown(
        structs.replace(
            consumer,
            replicas=workload.replicas,
            generation=generation,
            times=consumer.times + 1,
        )
    )


def may_be_scaled_yet(consumer: MoveConsumer, workload: Workload | None) -> bool:
    """Whether it is unchanged since it was recorded: a lost request to scale it may come yet."""
    return (
        workload is not None
        and workload.uid == consumer.uid
        and workload.metadata.generation == consumer.generation
        and workload.replicas == consumer.replicas
    )


def is_owed(consumers: Sequence[MoveConsumer]) -> bool:
    """Whether an owner has not got its replicas back."""
    return any(each.replicas is not None and not each.is_back for each in consumers)


def is_to_come_back(consumer: MoveConsumer, workload: Workload | None) -> bool:
    """Whether an owner is as the move has left it; what others have set since stays."""
    if workload is None or workload.uid != consumer.uid or consumer.replicas is None:
        return False
    # Recorded to be scaled further down (see ``lowered``), and not carried out.
    is_half_way = workload.metadata.generation == consumer.generation
    return workload.replicas == consumer.scale_to or (
        is_half_way and workload.replicas != consumer.replicas
    )


def is_further_down(consumer: MoveConsumer, workload: Workload | None) -> bool:
    """Whether an owner has fewer replicas than the move has left it."""
    return (
        workload is not None
        and workload.uid == consumer.uid
        and workload.replicas < consumer.scale_to
    )


def is_unchanged(seen: Workload, now: Workload | None) -> bool:
    """Whether nobody has scaled an owner between two looks."""
    return now is not None and (seen.uid, seen.metadata.generation) == (
        now.uid,
        now.metadata.generation,
    )


def gives_back_first(
    move: VolumeMove, consumer: MoveConsumer, moves: Iterable[VolumeMove]
) -> Await | None:
    """Another move that has scaled an owner further down, and has not given it back yet.

    It has recorded what this one has left; so the last one gives back first, and this one then
    finds the owner as it has left it. By ``scale_to``, so that no two wait for each other.
    """
    for other in moves:
        theirs = (each for each in other.told.consumers if each.uid == consumer.uid)
        if other.uid != move.uid and any(
            is_owed([each]) and each.scale_to < consumer.scale_to for each in theirs
        ):
            return Await(
                f"waiting until VolumeMove {other.key} has scaled {consumer.kind} {consumer.name} "
                "back, which it has scaled further down"
            )
    return None


def waits_to_give_back(move: VolumeMove, moves: Iterable[VolumeMove]) -> bool:
    """Whether a move that ends has an owner to give back, and another one has to do so first."""
    is_ending = move.told.phase in (Phase.CLEANING, Phase.ABORTING)
    owed = [each for each in move.told.consumers if is_owed([each])] if is_ending else []
    others = list(moves) if owed else []
    return any(gives_back_first(move, each, others) is not None for each in owed)
