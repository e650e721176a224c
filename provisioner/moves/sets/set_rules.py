"""Decide in which order the replicas of a StatefulSet are moved, and what is in the way."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner.model.sentences import listed
from provisioner.moves.sets.kind_rules import DisruptionBudget, StatefulSet
from provisioner.moves.wish_rules import Wish

# Claims of replicas that do not run stop nobody; still, EC2 has limits.
_STOPPED_AT_ONCE = 10
# As many claims may name each other; manifests/volume-moves/crd.yaml has it, movedWith.
MOST_TOGETHER = 100


@dataclass(frozen=True, slots=True)
class SetWish:
    """What is to become of a StatefulSet's claims.

    Attributes:
        wish: of each claim; its ``claim_name`` is "".
        at_once: how many replicas may be stopped at the same time.
    """

    wish: Wish
    at_once: int = 1

    @property
    def key(self) -> str:
        """``namespace/name`` of the StatefulSet."""
        return f"{self.wish.namespace}/{self.wish.set_name}"

    @property
    def is_stopped_whole(self) -> bool:
        """Whether all replicas stop together: a StatefulSet is scaled down from the top."""
        return self.wish.scale_down


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica. ``claims``: their names; ``runs``: it is to have a pod."""

    number: int
    pod: str
    claims: tuple[str, ...]
    runs: bool = True


def claims_of(found: StatefulSet, number: int) -> tuple[str, ...]:
    """The names of a replica's claims.

    Source: Kubernetes 1.36 pkg/controller/statefulset stateful_set_utils.go.
    """
    templates = (each.metadata.name for each in found.spec.volume_claim_templates)
    return tuple(f"{name}-{found.name}-{number}" for name in templates)


def replica(found: StatefulSet, number: int, claims: Iterable[str]) -> Replica:
    """A replica of which these claims are there."""
    last = found.first_ordinal + found.replicas
    return Replica(number, f"{found.name}-{number}", tuple(claims), runs=number < last)


def parts(replicas: Sequence[Replica], wish: SetWish) -> list[Replica] | str:
    """What is moved at the same time: a replica each, or all; or why it cannot be."""
    if not replicas:
        return f"StatefulSet {wish.key} has neither replicas nor claims"
    if not wish.is_stopped_whole:
        return list(replicas)
    every = tuple(name for each in replicas for name in each.claims)
    if len(every) > MOST_TOGETHER:
        return (
            f"StatefulSet {wish.key} has {len(every)} claims, of which no more than "
            f"{MOST_TOGETHER} are moved at the same time: leave --scale-down out"
        )
    first = replicas[0]
    return [Replica(first.number, first.pod, every, runs=first.runs)]


def refused(found: StatefulSet, budgets: Iterable[DisruptionBudget], wish: SetWish) -> str | None:
    """Why the StatefulSet is not moved, in one sentence."""
    who = f"StatefulSet {wish.key}"
    if found.deleting:
        return f"{who} is being deleted"
    if not found.spec.volume_claim_templates:
        return f"{who} has no volumeClaimTemplates: name the claims of its pods, such as pvc/data"
    if wish.is_stopped_whole or not found.replicas:
        return None
    for each in _of_set(found, budgets):
        status = each.status
        all_are_healthy = status.current_healthy >= status.expected_pods > 0
        if not status.disruptions_allowed and all_are_healthy:
            return (
                f"PodDisruptionBudget {each.name} lets no pod of {who} be stopped, although all "
                "are healthy: change it for that time"
            )
    return None


def _of_set(found: StatefulSet, budgets: Iterable[DisruptionBudget]) -> Iterator[DisruptionBudget]:
    labels = found.spec.template.metadata.labels or {}
    return (e for e in budgets if e.spec.selector is not None and e.spec.selector.selects(labels))


def not_ready(replicas: Iterable[Replica], down: Collection[str]) -> list[str]:
    """The pods, of replicas that are to be moved, that are not Ready before that."""
    return sorted(each.pod for each in replicas if each.runs and each.pod in down)


def notes(
    found: StatefulSet,
    replicas: Sequence[Replica],
    wish: SetWish,
    *,
    budgets: Iterable[DisruptionBudget],
    down: Collection[str],
    zones: Mapping[str, Collection[str]],
) -> list[str]:
    """What is to be known of the StatefulSet itself; sentences.

    Args:
        found: the StatefulSet.
        replicas: those that are to be moved.
        wish: what is asked.
        budgets: of its namespace.
        down: pods of it that are not Ready.
        zones: that its templates' classes allow, by the class, of those that name any.
    """
    said = list(_of_templates(found, zones, wish))
    if wish.is_stopped_whole:
        return said
    return [*said, *_of_pods(found, replicas, budgets, down), *_of_set_itself(found)]


def _of_pods(
    found: StatefulSet,
    replicas: Sequence[Replica],
    budgets: Iterable[DisruptionBudget],
    down: Collection[str],
) -> Iterator[str]:
    unready = not_ready(replicas, down)
    if unready:
        yield f"{_pods(unready)} not Ready: moved first"
    others = sorted(set(down) - {each.pod for each in replicas})
    if others:
        yield f"{_pods(others)} not Ready: the others wait for that"
    for each in _of_set(found, budgets):
        if not each.status.disruptions_allowed:
            yield f"PodDisruptionBudget {each.name} lets no pod be stopped now, so the move waits"


def _of_set_itself(found: StatefulSet) -> Iterator[str]:
    policy, status = found.spec.persistent_volume_claim_retention_policy, found.status
    if policy is not None and policy.when_scaled == "Delete":
        yield (
            "it deletes the claims of replicas that are scaled away (whenScaled: Delete): do not "
            "scale it down meanwhile"
        )
    if status.update_revision and status.current_revision != status.update_revision:
        yield "its rollout is not finished: pods that are stopped come back by the newer template"


def _pods(names: Collection[str]) -> str:
    what, verb = ("pod", "is") if len(names) == 1 else ("pods", "are")
    return f"{what} {listed(names, 'and')} {verb}"


def _of_templates(
    found: StatefulSet, zones: Mapping[str, Collection[str]], wish: SetWish
) -> Iterator[str]:
    """Where new replicas would go: templates cannot be changed."""
    to = wish.wish.to
    again = "to change that, create the StatefulSet again (kubectl delete --cascade=orphan)"
    for each in found.spec.volume_claim_templates:
        name, of_class = each.metadata.name, each.spec.storage_class_name or ""
        pinned = zones.get(of_class)
        if to.storage_class_name and of_class != to.storage_class_name:
            whose = f"class {of_class}" if of_class else "the default class"
            yield f"new replicas get volumes of {whose} still (template {name}): {again}"
        elif to.zone and pinned is not None and to.zone not in pinned:
            yield (
                f"new replicas get volumes in {listed(pinned)} still (template {name}, class "
                f"{of_class}): {again}"
            )
        elif to.size:
            size = (each.spec.resources.get("requests") or {}).get("storage", "")
            if size and size != to.size:
                yield f"new replicas get volumes of {size} still (template {name}): {again}"


def in_order(todo: Iterable[Replica], down: Collection[str]) -> list[Replica]:
    """Those that are down anyway, then the highest as in a rollout, then those without a pod."""
    return sorted(todo, key=lambda e: (not e.runs, e.pod not in down, -e.number))


def next_one(
    todo: Iterable[Replica], going: Sequence[Replica], down: Collection[str], at_once: int
) -> Replica | None:
    """The replica that is moved next; None if none may be begun now.

    Args:
        todo: those that wait.
        going: those that are being moved.
        down: pods of the StatefulSet that are not Ready.
        at_once: how many may be stopped at the same time.
    """
    stopped = {*down, *(each.pod for each in going if each.runs)}
    idle = sum(not each.runs for each in going)
    for each in in_order(todo, down):
        if each.runs and len(stopped - {each.pod}) < at_once:
            return each
        if not each.runs and idle < _STOPPED_AT_ONCE:
            return each
    return None
