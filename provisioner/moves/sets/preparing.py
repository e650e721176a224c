"""What is to be done for the claims of a StatefulSet.

What has been done is read from the cluster each time: claims that have what is asked are passed
over, moves under way are followed. So the command may be left, and run again.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from provisioner.inspect.reading.cluster import Cluster
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import STORAGE_CLASSES
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume_move import VolumeMove
from provisioner.model.zone import allowed_zones
from provisioner.moves import together
from provisioner.moves.requests import Moves
from provisioner.moves.sets import set_rules
from provisioner.moves.sets.kind_rules import StatefulSet
from provisioner.moves.sets.kinds import BUDGETS, SET_PODS, SETS
from provisioner.moves.sets.set_rules import Replica, SetWish
from provisioner.moves.wish_rules import Prepared, Wish


@dataclass(frozen=True, slots=True)
class PreparedSet:
    """What is to be done, and what is to be known before.

    Attributes:
        wish: what is asked.
        found: the StatefulSet.
        replicas: those with something to do, each with its claims; all in one if all stop together.
        running: all replicas that are to have pods.
        notes: of the StatefulSet; sentences.
        unready: pods that are not Ready, of replicas that are still to be begun.
    """

    wish: SetWish
    found: StatefulSet
    replicas: Sequence[tuple[Replica, Sequence[Prepared]]]
    running: Sequence[Replica]
    notes: Sequence[str] = ()
    unready: Sequence[str] = ()

    @property
    def plans(self) -> list[list[VolumeMove]]:
        """The dry runs of those that are to be begun, by replica."""
        groups = [[e.move for e in group if e.is_planned] for _, group in self.replicas]
        return [each for each in groups if each]


async def prepare(
    client: KubeClient, cluster: Cluster, wish: SetWish, *, dry_run: bool, flags: str = ""
) -> PreparedSet:
    """Read a StatefulSet, and plan the moves of all of its claims.

    Args:
        client: of the API server.
        cluster: the same, for what one need not be able to read.
        wish: what is asked.
        dry_run: nothing is to follow.
        flags: that name the cluster to kubectl, for commands that are printed.

    Raises:
        StorageError: it cannot be moved so; nothing was touched.
    """
    moves, namespace = Moves(client, flags), wish.wish.namespace
    found = await moves.object(SETS, namespace, wish.wish.set_name)
    if found is None:
        raise StorageError(Reason.OBJECT_NOT_FOUND, f"there is no StatefulSet {wish.key}")
    budgets = await cluster.every(BUDGETS, namespace=namespace)
    why = set_rules.refused(found, budgets, wish)
    if why is not None:
        raise StorageError(Reason.NOT_SUPPORTED, why)
    every = await _replicas(moves, found, namespace)
    parts = set_rules.parts(every, wish)
    if isinstance(parts, str):
        raise StorageError(Reason.NOT_SUPPORTED, parts)
    groups = [[_wish_of(wish, each, name) for name in each.claims] for each in parts]
    prepared = await together.prepare(moves, groups, dry_run=dry_run)
    pairs = zip(parts, prepared, strict=True)
    todo = [(each, group) for each, group in pairs if not all(one.is_there for one in group)]
    to_begin = [each for each, group in todo if not any(map(is_under_way, group))]
    running = [each for each in every if each.runs]
    down = await down_of(moves, found, running, namespace)
    zones = await _zones_of_templates(Cluster(client), found)
    notes = set_rules.notes(found, to_begin, wish, budgets=budgets, down=down, zones=zones)
    unready = [] if wish.is_stopped_whole else set_rules.not_ready(to_begin, down)
    return PreparedSet(wish, found, todo, running, notes, unready)


def _wish_of(wish: SetWish, each: Replica, claim_name: str) -> Wish:
    restarts = each.runs and not wish.is_stopped_whole
    return replace(wish.wish, claim_name=claim_name, restart=restarts)


def is_under_way(prepared: Prepared) -> bool:
    """Whether a move was there before."""
    return not prepared.is_there and not prepared.is_planned


async def _replicas(moves: Moves, found: StatefulSet, namespace: str) -> list[Replica]:
    """Those that are to run, and those after them of which claims are left."""
    last = found.first_ordinal + found.replicas
    replicas: list[Replica] = []
    number = found.first_ordinal
    while True:
        names = set_rules.claims_of(found, number)
        claims = await asyncio.gather(*(moves.claim(namespace, name) for name in names))
        there = [name for name, claim in zip(names, claims, strict=True) if claim is not None]
        missing = sorted({*names} - {*there})
        if number < last and missing:
            raise StorageError(
                Reason.OBJECT_NOT_FOUND,
                f"there is no pvc {namespace}/{missing[0]}, which pod {found.name}-{number} needs",
            )
        if not there:
            return replicas
        replicas.append(set_rules.replica(found, number, there))
        number += 1


async def down_of(
    moves: Moves, found: StatefulSet, running: Iterable[Replica], namespace: str
) -> set[str]:
    """The pods that are not Ready now, or not there."""
    names = [each.pod for each in running]
    pods = await asyncio.gather(*(moves.object(SET_PODS, namespace, name) for name in names))
    now, least_s = datetime.now(UTC), found.spec.min_ready_seconds
    return {
        name
        for name, pod in zip(names, pods, strict=True)
        if pod is None or not pod.is_ready(now, least_s)
    }


async def _zones_of_templates(
    cluster: Cluster, found: StatefulSet
) -> Mapping[str, Collection[str]]:
    """By class. Classes belong to no namespace, so many may not read them: then nothing is said."""
    names = {each.spec.storage_class_name for each in found.spec.volume_claim_templates}
    zones: dict[str, Collection[str]] = {}
    for name in sorted(filter(None, names)):
        of_class = await cluster.one(STORAGE_CLASSES, name)
        allowed = allowed_zones(of_class.allowed_topologies or ()) if of_class is not None else None
        if allowed is not None:
            zones[name] = allowed
    return zones
