"""A plan as a person reads it."""

from collections.abc import Iterable, Iterator, Sequence

from provisioner.inspect.terminal.table_rules import NOTHING, table, wrapped
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.sentences import MOST_LISTED, listed
from provisioner.model.volume_move import MovePlan, Shape, VolumeMove

_HEADINGS = ("", "NOW", "AFTERWARDS")
_HEADINGS_OF_MANY = ("CLAIM", "VOLUME", "SIZE", "NOW", "AFTERWARDS")
_BULLET = "  - "


def lines(
    move: VolumeMove, stops: Sequence[str], *, width: int, estimates: Sequence[str] = ()
) -> Iterator[str]:
    """The plan of a move; nothing if it has none.

    Args:
        move: whose status has the plan.
        stops: how the pods are stopped by hand; sentences.
        estimates: of time and cost; sentences.
        width: of the lines, in characters; commands are longer.
    """
    plan = move.told.plan
    if plan is None:
        return
    what = "volume with the same data"
    if plan.keeps_volume:
        what = "PersistentVolume of the same volume; nothing is copied"
    gets = f"another {what}"
    if move.goes_back:
        gets = f"its volume from before VolumeMove {move.spec.to.source} again; nothing is copied"
    yield f"Claim {move.claim_key} gets {gets}:"
    yield ""
    yield from table(_HEADINGS, _rows(move, plan))
    yield ""
    yield from _stops(move, plan, stops, width)
    yield from _part("Time and cost:", estimates, width)
    yield from _part("Good to know:", plan.notes, width)
    old = "The old PersistentVolume:" if plan.keeps_volume else "The old volume:"
    old = "The newer volume:" if move.goes_back else old
    yield from _part(old, [_kept(move, plan)], width)


def _rows(move: VolumeMove, plan: MovePlan) -> Iterator[tuple[str, str, str]]:
    source = move.told.source
    volume_id = source.volume_id if source is not None else ""
    then = move.kept.volume_id or "a new one"
    yield "volume", volume_id or NOTHING, "the same" if plan.keeps_volume else then
    if plan.source.driver == IN_TREE_DRIVER:
        yield "form", "in-tree", "CSI"
    if move.changes_driver:
        yield "driver", plan.source.driver, plan.target.driver
    cells = zip(_cells(plan.source), _cells(plan.target), strict=True)
    for (name, now), (_, afterwards) in cells:
        if now or afterwards:
            yield name, now or NOTHING, afterwards or NOTHING


def _cells(shape: Shape) -> Iterator[tuple[str, str]]:
    yield "zone", shape.zone
    yield "class", shape.storage_class_name
    yield "size", f"{shape.size_gib} GiB"
    yield "file system", shape.fs_type
    yield "type", shape.volume_type
    yield "IOPS", str(shape.iops) if shape.iops is not None else ""
    throughput = shape.throughput_mibps
    yield "throughput", f"{throughput} MiB/s" if throughput is not None else ""
    yield "encrypted", "yes" if shape.encrypted else "no"
    yield "key", shape.kms_key_id or ""


def _stops(move: VolumeMove, plan: MovePlan, stops: Sequence[str], width: int) -> Iterator[str]:
    pods = plan.pods
    if not pods:
        yield "No pod uses the claim now. One that is started meanwhile waits for its end."
        yield ""
        return
    what = "Pod" if len(pods) == 1 else "Pods"
    verb = "stops" if len(pods) == 1 else "stop"
    long = "a snapshot, a new volume and the exchange take"
    if not move.copies:
        long = "the exchange takes, which is seconds"
    if plan.checks:
        long = "a snapshot, a new volume, its check and the exchange take"
    if plan.copies_files:
        long = "a new volume, copying and comparing all files, and the exchange take"
    yield from wrapped(f"{what} {listed(pods, 'and')} {verb} for as long as {long}.", width=width)
    if move.stops_pods:
        yield from _part("The move stops them:", plan.stops, width)
        return
    yield "The move waits until you stop them:"
    # A command is not broken into lines: it is there to be copied.
    yield from (f"{_BULLET}{each}" for each in stops)
    yield ""


def lines_of_many(
    moves: Sequence[VolumeMove],
    stops: Sequence[str],
    *,
    title: str,
    width: int,
    estimates: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Iterator[str]:
    """The plans of several moves: a row for each, and what is true of them once.

    Args:
        moves: dry runs, whose status has the plan.
        stops: how the pods are stopped by hand; sentences.
        title: what is moved.
        width: of the lines, in characters; commands and the table are longer.
        estimates: of time and cost; sentences.
        notes: that come before those of the plans.
    """
    planned = [(each, each.told.plan) for each in moves if each.told.plan is not None]
    yield title
    yield ""
    yield from table(_HEADINGS_OF_MANY, [_row(move, plan) for move, plan in planned])
    yield ""
    pods = sorted({pod for _, plan in planned for pod in plan.pods})
    own = list(dict.fromkeys(stop for _, plan in planned for stop in plan.stops))
    said = "No pod uses the claims now. One that is started meanwhile waits for the end."
    if pods:
        said = f"Pods that stop, each for as long as its claims are moved: {listed(pods, 'and')}."
    yield from wrapped(said, width=width)
    yield ""
    yield from _part("The move stops pods:", own, width)
    if stops:
        yield "The move waits until you stop the pods:"
        yield from (f"{_BULLET}{each}" for each in stops)
        yield ""
    yield from _part("Time and cost:", estimates, width)
    yield from _part("Good to know:", [*notes, *_notes_of(planned)], width)
    yield from _part("The old volumes:", _kept_of(planned), width)


def _row(move: VolumeMove, plan: MovePlan) -> tuple[str, ...]:
    source = move.told.source
    now, afterwards = dict(_cells(plan.source)), dict(_cells(plan.target))
    changed = [key for key in now if now[key] != afterwards[key]]
    return (
        move.spec.claim_name,
        source.volume_id if source is not None else NOTHING,
        f"{plan.source.size_gib} GiB",
        ", ".join(f"{key} {now[key] or NOTHING}" for key in changed) or "in-tree form",
        ", ".join(f"{key} {afterwards[key] or NOTHING}" for key in changed) or "CSI form",
    )


def _notes_of(planned: Sequence[tuple[VolumeMove, MovePlan]]) -> Iterator[str]:
    """Each note once; one that is not true of all with the names of its claims."""
    whose: dict[str, list[str]] = {}
    for move, plan in planned:
        for note in plan.notes:
            whose.setdefault(note, []).append(move.spec.claim_name)
    for note, claims in whose.items():
        yield note if len(claims) == len(planned) else f"{listed(claims, 'and')}: {note}"


def _kept_of(planned: Sequence[tuple[VolumeMove, MovePlan]]) -> list[str]:
    kept = [_kept(move, plan) for move, plan in planned]
    more = len(kept) - MOST_LISTED
    return [*kept[:MOST_LISTED], *([f"{more} more likewise"] if more > 0 else [])]


def _part(title: str, sentences: Iterable[str], width: int) -> Iterator[str]:
    told = list(sentences)
    if not told:
        return
    yield title
    for each in told:
        first, *more = wrapped(each, width=width, indent=" " * len(_BULLET))
        yield _BULLET + first.lstrip()
        yield from more
    yield ""


def _kept(move: VolumeMove, plan: MovePlan) -> str:
    source = move.told.source
    if plan.keeps_volume:
        name = source.persistent_volume if source is not None else ""
        until = move.spec.keep_source
        return f"PersistentVolume {name} is kept for {until}, then it is deleted; the volume stays"
    name, volume_id = (source.persistent_volume, source.volume_id) if source else ("", "")
    policy = source.reclaim_policy if source is not None else ""
    if policy in ("", "Retain"):
        return f"PersistentVolume {name} keeps {volume_id} until you delete both"
    if policy == "Delete":
        end = "then the volume and its data are deleted"
    else:
        end = f"then its reclaim policy {policy} holds again"
    return f"PersistentVolume {name} keeps {volume_id} for {move.spec.keep_source}, {end}"
