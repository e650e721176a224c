"""How far a move is, as a person reads it, and how it ended."""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import structs

from provisioner.inspect.df.usage_rules import size
from provisioner.inspect.shell_words import shell
from provisioner.model.volume_move import ABORTABLE, ENDS, STAGES, Phase, VolumeMove

# Asked to abort in these, a move goes on to its end all the same.
_LATE = frozenset(Phase) - ABORTABLE - ENDS - {Phase.NEW, Phase.ABORTING}
_DOES = {
    Phase.NEW: "waiting for a controller to make the plan",
    Phase.PLANNED: "the plan is made",
    Phase.WARMING: "snapshots are taken while pods run, so that they stop for less long",
    Phase.HELD: "waiting until the old volume is attached to no node",
    Phase.SNAPSHOTTING: "a snapshot of the old volume is taken",
    Phase.CREATING: "the new volume is created",
    Phase.CHECKING: "a pod checks the new volume",
    Phase.COPYING: "a pod copies the files to the new volume",
    Phase.SWAPPING: "the claim is exchanged",
    Phase.CLEANING: "the claim is exchanged; pods can use it",
    Phase.ABORTING: "the move is undone; the claim has its old volume",
}
_COUNTED = frozenset({Phase.WARMING, Phase.SNAPSHOTTING})  # these always have a percentage
_BAR = 20  # characters


@dataclass(frozen=True, slots=True)
class End:
    """How it ended.

    Attributes:
        sentence: for the user.
        status: what the program exits with.
        colour: of the sentence on a terminal.
    """

    sentence: str
    status: int

    @property
    def colour(self) -> str:
        """As a terminal shows it."""
        return "red" if self.status else "green"


def is_late(move: VolumeMove) -> bool:
    """Whether a move goes on to its end whatever is asked."""
    return move.told.phase in _LATE or move.is_promised


def too_late(move: VolumeMove, why: str) -> str:
    """That a move cannot be aborted any more although it should be, and what undoes it then."""
    said = f"{why}, and it is too late to abort the move"
    if move.keeps_volume:
        return said  # there is no other volume to go back to
    command = shell("kubectl ebs move -n {} --abort {}", move.metadata.namespace, move.name)
    return f"{said}: once it is Done, {command} undoes it"


def counted(move: VolumeMove, done_bytes: int, total_bytes: int) -> VolumeMove:
    """A move with how many bytes of its files are copied, where that is known.

    The last of them have to be compared yet, and file systems take some for themselves: never all.
    """
    if move.told.phase != Phase.COPYING or not total_bytes:
        return move
    percent = min(99, 100 * done_bytes // total_bytes)
    told = structs.replace(move.told, progress_percent=percent, total_bytes=total_bytes)
    return structs.replace(move, status=told)


def _is_counted(move: VolumeMove) -> bool:
    told = move.told
    return told.phase in _COUNTED or (told.phase == Phase.COPYING and told.total_bytes > 0)


def _way() -> Iterator[Phase]:
    """The phases of a move that meets nothing, in their order."""
    phase = Phase.PLANNED
    while STAGES[phase].then:
        phase = STAGES[phase].then[0]
        yield phase


_WAY = tuple(_way())


def step(move: VolumeMove) -> str:
    """The phase and where it is on the way: "[2/6] Snapshotting"."""
    phase = move.told.phase
    left_out = {Phase.WARMING: not move.warms, Phase.CHECKING: not move.checks}
    way = [each for each in _WAY if not left_out.get(each)]
    if phase not in way:
        return phase or "New"
    return f"[{way.index(Phase(phase)) + 1}/{len(way)}] {phase}"


def line(move: VolumeMove) -> str:
    """How far it is, in one line."""
    return f"{step(move)}: {_said(move)}{_percent(move)}"


def bar_line(move: VolumeMove, passed_s: float) -> str:
    """The same with a bar and the time, for a line that is written again and again."""
    told = move.told
    bar = ""
    if _is_counted(move):
        full = _BAR * max(0, min(told.progress_percent, 100)) // 100
        bar = f" {'█' * full}{'░' * (_BAR - full)}"
    return f"{step(move)}{bar}{_percent(move)} {_clock(passed_s)}  {_said(move)}"


def mark(move: VolumeMove) -> tuple[str, str, int]:
    """What has to change for another line where no line is written twice: tens of percent."""
    told = move.told
    tens = told.progress_percent // 10 if _is_counted(move) else 0
    return told.phase, _said(move), tens


def consumers(move: VolumeMove) -> Iterator[str]:
    """What was done to the owners of pods so far; a sentence each, which stays true."""
    for each in move.told.consumers:
        who = f"{each.kind} {each.name}"
        if each.replicas is not None:
            yield f"{who} is scaled from {each.replicas} to {each.scale_to}"
        if each.replicas is not None and each.is_back:
            yield f"{who} is scaled back to {each.replicas}, unless somebody has scaled it since"


def _said(move: VolumeMove) -> str:
    told = move.told
    # The notes of the plan were shown before; they are no news.
    if told.message and told.phase != Phase.PLANNED:
        return told.message
    known = [each for each in _DOES if each == told.phase]
    return _DOES[known[0]] if known else told.message


def _percent(move: VolumeMove) -> str:
    told = move.told
    if not _is_counted(move):
        return ""
    of = f" of {size(told.total_bytes)}" if told.total_bytes else ""
    return f" {told.progress_percent} %{of}"


def _clock(passed_s: float) -> str:
    minutes, seconds = divmod(int(passed_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def ending(move: VolumeMove, *, wanted: Phase = Phase.DONE) -> End | None:
    """How a move ended; None if it goes on.

    Args:
        move: as it is now.
        wanted: how it was to end: DONE, or ABORTED for somebody who aborts it.
    """
    told, key = move.told, move.key
    status = 0 if told.phase == wanted else 1
    match told.phase:
        case Phase.DONE:
            return End(f"{_late(wanted)}{_done(move)}", status)
        case Phase.REFUSED:
            return End(f"VolumeMove {key} is refused, and nothing was touched: {told.message}", 1)
        case Phase.ABORTED:
            why = f" ({told.message})" if told.message else ""
            return End(
                f"VolumeMove {key} is aborted: claim {move.claim_key} has its old volume{why}",
                status,
            )
    if told.phase == Phase.PLANNED and move.spec.dry_run:
        return End(f"VolumeMove {key} is a dry run: it has a plan, and is not carried out", 0)
    return None


def _late(wanted: Phase) -> str:
    return "it was too late to abort: " if wanted is Phase.ABORTED else ""


def _done(move: VolumeMove) -> str:
    told = move.told
    zone = f" in {told.plan.target.zone}" if told.plan is not None else ""
    pods = told.plan.pods if told.plan is not None else []
    start = "; start its pods again" if pods and not move.stops_pods else ""
    kept = f"; {told.message}" if told.message else ""
    return f"claim {move.claim_key} has volume {told.volume}{zone}{start}{kept}"


def gone(move: VolumeMove, volume_name: str | None, *, wanted: Phase = Phase.DONE) -> End:
    """What is known of a move that is not there any more.

    Args:
        move: as it was when it was seen last.
        volume_name: the PersistentVolume that its claim names now, "" for none; None if there is
            no claim.
        wanted: how it was to end.
    """
    was = f"VolumeMove {move.key} was deleted by somebody"
    if volume_name == move.persistent_volume_name:
        return End(
            f"{was}, and claim {move.claim_key} has the new volume",
            0 if wanted is Phase.DONE else 1,
        )
    if volume_name is None:
        return End(
            f"{was}, and claim {move.claim_key} is not there: its data are in the "
            "PersistentVolumes that named it (kubectl get pv)",
            1,
        )
    source = move.told.source
    if source is not None and volume_name != source.persistent_volume:
        name = volume_name or "none"
        return End(f"{was}; the PersistentVolume of claim {move.claim_key} is {name} now", 1)
    return End(
        f"{was}: claim {move.claim_key} has its old volume", 0 if wanted is Phase.ABORTED else 1
    )
