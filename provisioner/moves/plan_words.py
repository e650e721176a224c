"""A plan as a person reads it."""

from collections.abc import Iterable, Iterator, Sequence

from provisioner.inspect.terminal.table_rules import NOTHING, table, wrapped
from provisioner.model.sentences import listed
from provisioner.model.volume_move import Shape, VolumeMove

_HEADINGS = ("", "NOW", "AFTERWARDS")
_BULLET = "  - "


def lines(
    move: VolumeMove, stops: Sequence[str], interferes: Sequence[str], *, width: int
) -> Iterator[str]:
    """The plan of a move; nothing if it has none.

    Args:
        move: whose status has the plan.
        stops: how the pods are stopped; sentences.
        interferes: who would interfere; sentences.
        width: of the lines, in characters; commands are longer.
    """
    plan = move.told.plan
    if plan is None:
        return
    yield f"Claim {move.claim_key} gets another volume with the same data:"
    yield ""
    yield from table(_HEADINGS, _rows(move, plan.source, plan.target))
    yield ""
    yield from _stops(plan.pods, stops, width)
    yield from _part("Good to know:", plan.notes, width)
    yield from _part("This would interfere:", interferes, width)
    yield from _part("The old volume:", [_kept(move)], width)


def _rows(move: VolumeMove, before: Shape, after: Shape) -> Iterator[tuple[str, str, str]]:
    source = move.told.source
    volume_id = source.volume_id if source is not None else ""
    yield "volume", volume_id or NOTHING, "a new one"
    cells = zip(_cells(before), _cells(after), strict=True)
    for (name, now), (_, afterwards) in cells:
        if now or afterwards:
            yield name, now or NOTHING, afterwards or NOTHING


def _cells(shape: Shape) -> Iterator[tuple[str, str]]:
    yield "zone", shape.zone
    yield "class", shape.storage_class_name
    yield "size", f"{shape.size_gib} GiB"
    yield "type", shape.volume_type
    yield "IOPS", str(shape.iops) if shape.iops is not None else ""
    throughput = shape.throughput_mibps
    yield "throughput", f"{throughput} MiB/s" if throughput is not None else ""
    yield "encrypted", "yes" if shape.encrypted else "no"
    yield "key", shape.kms_key_id or ""


def _stops(pods: Sequence[str], stops: Sequence[str], width: int) -> Iterator[str]:
    if not pods:
        yield "No pod uses the claim now. One that is started meanwhile waits for the new volume."
        yield ""
        return
    what = "Pod" if len(pods) == 1 else "Pods"
    verb = "stops" if len(pods) == 1 else "stop"
    why = (
        f"{what} {listed(pods, 'and')} {verb} for as long as a snapshot, a new volume and the "
        "exchange take. The move waits until you stop them:"
    )
    yield from wrapped(why, width=width)
    # A command is not broken into lines: it is there to be copied.
    yield from (f"{_BULLET}{each}" for each in stops)
    yield ""


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


def _kept(move: VolumeMove) -> str:
    source = move.told.source
    name, volume_id = (source.persistent_volume, source.volume_id) if source else ("", "")
    policy = source.reclaim_policy if source is not None else ""
    if policy in ("", "Retain"):
        end = "and after it"
    elif policy == "Delete":
        end = "then it is deleted"
    else:
        end = f"then its reclaim policy {policy} holds again"
    return f"PersistentVolume {name} keeps {volume_id} for {move.spec.keep_source}, {end}"
