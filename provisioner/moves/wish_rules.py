"""What somebody asks of ``kubectl ebs move``, and the VolumeMove that says the same.

The name of a move is made of its claim's UID and of what is to change: the same command run twice,
or after a reply that was lost, names the same object, of which the API server keeps one.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from provisioner.inspect.df import usage_rules
from provisioner.inspect.shell_words import shell
from provisioner.model.claim import CLAIM_KIND, Claim
from provisioner.model.names import MOVED_SET
from provisioner.model.quantity import parse_bytes
from provisioner.model.sentences import listed, printable
from provisioner.model.volume import GIB
from provisioner.model.volume_move import (
    API_VERSION,
    ENDS,
    KIND,
    MoveTarget,
    Phase,
    StopPolicy,
    VolumeMove,
    VolumeMoveSpec,
)
from provisioner.moves.subject_rules import SET_WORDS, kind_of

Json = dict[str, Any]
_HOURS = re.compile("[0-9]{1,5}h")  # as manifests/volume-moves/crd.yaml has it
_LONGEST_NAME = 253
_ROOM_FOR_ENDING = 20
NO_CHANGE = MoveTarget()
_SAY_WHAT = (
    "say what is to change: --to-zone, --to-class, --encrypted, --kms-key, --size, --fs-type or "
    "--form; without any argument, moves are listed"
)
_LONGEST_LABEL = 63
_BEFORE_PODS_STOP = frozenset({Phase.NEW, Phase.PLANNED, Phase.WARMING})


class Task(StrEnum):
    """What one run of the command is to do."""

    LIST = "--list"
    RESUME = "--resume"
    ABORT = "--abort"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Given:
    """The command line. None for a value that was not given."""

    words: tuple[str, ...] = ()
    to: MoveTarget = NO_CHANGE
    scale_down: bool = False
    restart: bool = False
    without_hold: bool = False
    no_warm: bool = False
    check: bool = False
    at_once: int | None = None
    keep_source: str | None = None
    yes: bool = False
    dry_run: bool = False
    resume: str | None = None
    abort: str | None = None
    listing: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to become of a claim.

    Attributes:
        keep_source: "" if it was not said.
        scale_down: the move scales the owners of the pods down.
        restart: it evicts the pods.
        without_hold: also where no webhook holds new pods back.
        no_warm: pods stop at once, without snapshots while they run.
        check: a node reads the new volume before the claim gets it.
        moved_with: the claims that are moved at the same time.
        set_name: the StatefulSet whose claims are moved, "" for none.
    """

    namespace: str
    claim_name: str
    to: MoveTarget
    keep_source: str = ""
    scale_down: bool = False
    restart: bool = False
    without_hold: bool = False
    no_warm: bool = False
    check: bool = False
    moved_with: tuple[str, ...] = ()
    set_name: str = ""

    @property
    def claim_key(self) -> str:
        """``namespace/name`` of the claim."""
        return f"{self.namespace}/{self.claim_name}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be followed, if anything.

    Attributes:
        wish: of a claim.
        move: one that is under way already; a dry run with the plan of one to come; or what tells
            that there is nothing to do.
        name: of the one to come, else "".
        is_there: the claim has what is asked.
    """

    wish: Wish
    move: VolumeMove
    name: str = ""
    is_there: bool = False

    @property
    def is_planned(self) -> bool:
        """Whether the move is still to be made."""
        return self.move.spec.dry_run and not self.is_there

    @property
    def agreed(self) -> VolumeMove | None:
        """The dry run whose plan somebody agrees to; None of a move that was there before."""
        return self.move if self.is_planned else None


def target(
    zone: str | None,
    class_name: str | None,
    kms_key: str | None,
    size: str | None,
    form: str | None,
    *,
    encrypted: bool,
    fs_type: str | None = None,
) -> MoveTarget:
    """What is to change, of options; None for those that were not given.

    Raises:
        ValueError: one sentence.
    """
    named = {"--to-zone": zone, "--to-class": class_name, "--kms-key": kms_key, "--size": size}
    for option, value in named.items():
        if value is not None and not value.strip():
            raise ValueError(f"{option} is empty: leave it out, or say what it is to be")
    if size is not None and not parse_bytes(size):
        raise ValueError(f"--size {printable(size)} is nothing: give a size such as 30Gi")
    return MoveTarget(
        zone=zone or "",
        storage_class_name=class_name or "",
        encrypted=True if encrypted else None,
        kms_key_id=kms_key or "",
        size=size or "",
        fs_type=fs_type or "",
        form=form or "",
    )


def task_of(given: Given) -> Task:
    """What the command line asks for.

    Raises:
        ValueError: its options do not go together; one sentence.
    """
    asked = [
        task
        for task, is_asked in (
            (Task.LIST, given.listing),
            (Task.RESUME, given.resume is not None),
            (Task.ABORT, given.abort is not None),
        )
        if is_asked
    ]
    if len(asked) > 1:
        raise ValueError(f"{asked[0]} and {asked[1]} exclude each other")
    wishes = _wishes(given)
    if asked == [Task.ABORT] and not (given.words or given.to != NO_CHANGE):
        wishes = []  # a move that is done is aborted by another one, which takes the others
    if asked and wishes:
        alone = "stands alone" if asked[0] is Task.LIST else "takes the name of a VolumeMove alone"
        raise ValueError(f"{asked[0]} {alone}: leave {wishes[0]} out")
    task = asked[0] if asked else Task.MOVE if wishes else Task.LIST
    if given.as_json and task is not Task.LIST:
        raise ValueError("-o json is for the list of moves")
    if task is Task.MOVE:
        _check_move(given)
    if task in (Task.MOVE, Task.ABORT):
        _check_how(given)
    return task


def _wishes(given: Given) -> list[str]:
    """What only the beginning of a move takes, as it stands on the command line."""
    there = {
        " ".join(map(printable, given.words)): bool(given.words),
        "what is to change": given.to != NO_CHANGE,
        "--restart": given.restart,
        "--without-hold": given.without_hold,
        "--no-warm": given.no_warm,
        "--check": given.check,
        "--scale-down": given.scale_down,
        "--at-once": given.at_once is not None,
        "--keep-source": given.keep_source is not None,
        "--yes": given.yes,
        "--dry-run": given.dry_run,
    }
    return [name for name, is_there in there.items() if is_there]


def _check_move(given: Given) -> None:
    if not given.words:
        raise ValueError("name the claim that is to move, such as: pvc/data")
    is_set = kind_of(given.words[0]) in SET_WORDS  # whose pods restart, if nothing else is said
    if given.at_once is not None and not is_set:
        raise ValueError("--at-once is for a StatefulSet, such as sts/web")
    if given.at_once is not None and given.scale_down:
        raise ValueError(
            "--scale-down stops all replicas of a StatefulSet at once, so --at-once says nothing: "
            "leave one of them out"
        )
    if given.to == NO_CHANGE:
        raise ValueError(_SAY_WHAT)


def _check_how(given: Given) -> None:
    if given.scale_down and given.restart:
        raise ValueError(
            "--restart and --scale-down exclude each other: give the one that you mean"
        )
    if given.no_warm and given.abort is not None:
        raise ValueError(
            "--no-warm says nothing with --abort, as no snapshot is taken to go back: leave it out"
        )
    if given.check and given.abort is not None:
        raise ValueError(
            "--check says nothing with --abort, as no volume is made to go back: leave it out"
        )
    if given.dry_run and given.yes:
        raise ValueError("--dry-run changes nothing, so there is nothing for --yes to agree to")
    if given.keep_source is not None and not _HOURS.fullmatch(given.keep_source):
        told = printable(given.keep_source)[:40]
        raise ValueError(f"--keep-source {told!r} is not a number of hours such as 168h")


def to_json(to: MoveTarget) -> Json:
    """``spec.to``, only with what is said."""
    return {k: v for k, v in msgspec.to_builtins(to).items() if v not in ("", None)}


def name_of(wish: Wish, claim_uid: str, taken: Collection[str]) -> str:
    """The name of the move that carries a wish out: the same for the same wish.

    Args:
        wish: what is asked.
        claim_uid: of the claim as it is now; after a move it has another.
        taken: names of moves there are, of which none carries the wish out (see ``running``).
    """
    asked = [claim_uid, to_json(wish.to), *(_consumers(wish).values())]
    asked += [sorted(wish.moved_with)] if wish.moved_with else []
    asked += ["no warm"] if wish.no_warm else []
    asked += ["check"] if wish.check else []
    text = json.dumps(asked, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    base = f"{_stem(wish.claim_name)}-{digest}"
    names = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _consumers(wish: Wish) -> Json:
    """``spec.consumers``, only if it is said: an older CRD does not know it."""
    asked: Json = {}
    if wish.scale_down:
        asked["policy"] = StopPolicy.SCALE_DOWN.value
    elif wish.restart:
        asked["policy"] = StopPolicy.RESTART.value
    if wish.without_hold:
        asked["withoutHold"] = True
    return {"consumers": asked} if asked else {}


def plan_name(wish: Wish, token: str) -> str:
    """The name of a dry run, which nobody looks for; ``token`` makes it another each time."""
    return f"{_stem(wish.claim_name)}-plan-{token}"


def _stem(claim_name: str) -> str:
    return claim_name[: _LONGEST_NAME - _ROOM_FOR_ENDING].rstrip("-.")


def body(wish: Wish, name: str, *, dry_run_of: Claim | None = None) -> Json:
    """The VolumeMove to POST.

    Args:
        wish: what is asked.
        name: the move's.
        dry_run_of: only the plan is to be made, of this claim. It owns the dry run, so that one
            whose command was killed goes when the claim is moved or deleted.
    """
    spec: Json = {"claimName": wish.claim_name, "to": to_json(wish.to)} | _consumers(wish)
    metadata: Json = {"name": name, "namespace": wish.namespace}
    if wish.set_name:
        metadata["labels"] = {MOVED_SET: wish.set_name[:_LONGEST_LABEL]}
    if wish.moved_with:
        spec["movedWith"] = sorted(wish.moved_with)
    if wish.keep_source:
        spec["keepSource"] = wish.keep_source
    if wish.no_warm:
        spec["warm"] = False
    if wish.check:
        spec["check"] = True
    if dry_run_of is not None:
        spec["dryRun"] = True
        owner = {"apiVersion": "v1", "kind": CLAIM_KIND}
        metadata["ownerReferences"] = [owner | {"name": dry_run_of.name, "uid": dry_run_of.uid}]
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def back_before(found: Sequence[VolumeMove], given: Given) -> list[Wish]:
    """What gives claims whose moves are done their old volumes again; nothing for other moves.

    Raises:
        ValueError: options that only this takes were given for another move; one sentence.
    """
    under_way = [each for each in found if each.told.phase != Phase.DONE]
    if not under_way:
        return [_back_before(each, given) for each in found]
    options = {
        "--restart": given.restart,
        "--scale-down": given.scale_down,
        "--without-hold": given.without_hold,
        "--keep-source": given.keep_source is not None,
        "--dry-run": given.dry_run,
    }
    wrong = next((option for option, is_given in options.items() if is_given), None)
    if wrong is not None:
        raise ValueError(
            f"{wrong} with --abort is for a move that is done, and VolumeMove {under_way[0].key} "
            f"is not: leave {wrong} out"
        )
    return []


def _back_before(move: VolumeMove, given: Given) -> Wish:
    return Wish(
        move.metadata.namespace,
        move.spec.claim_name,
        MoveTarget(source=move.name),
        given.keep_source or "",
        scale_down=given.scale_down,
        restart=given.restart,
        without_hold=given.without_hold,
    )


def is_made_of(move: VolumeMove, asked: Mapping[str, Any]) -> bool:
    """Whether a move that is there is the one that a POST of this body makes."""
    spec = msgspec.convert(asked["spec"], type(move.spec))
    return _asked(move.spec) == _asked(spec)


def _asked(spec: VolumeMoveSpec) -> tuple[object, ...]:
    what = (spec.claim_name, spec.to, spec.consumers, sorted(spec.moved_with))
    return *what, spec.warm, spec.check, spec.dry_run


def has_ended(move: VolumeMove) -> bool:
    """Whether nothing more comes of it."""
    return move.told.phase in ENDS


def running(moves: Iterable[VolumeMove], claim_name: str) -> VolumeMove | None:
    """The move of a claim that is under way: the one that began, else the one that will."""
    going = [
        each
        for each in moves
        if each.spec.claim_name == claim_name and not each.spec.dry_run and not has_ended(each)
    ]
    going.sort(key=lambda each: (each.told.phase == Phase.NEW, _created_at(each), each.name))
    return going[0] if going else None


def _created_at(move: VolumeMove) -> str:
    at = move.metadata.creation_timestamp
    return at.isoformat() if at is not None else ""


def unlike(wish: Wish, move: VolumeMove) -> str | None:
    """Why a move under way is not the one that is asked for, as a sentence; None if it is."""
    if move.is_to_end:
        return f"VolumeMove {move.key} of this claim is being aborted: wait for its end"
    what = described(move.spec.to)
    if move.spec.to != wish.to:
        return (
            f"VolumeMove {move.key} is moving this claim already, and to something else "
            f"({what}): wait for its end, or abort it with --abort {move.name}"
        )
    option = "--scale-down" if wish.scale_down else "--restart"
    if (wish.scale_down and not move.scales_down) or (wish.restart and not move.restarts):
        return (
            f"VolumeMove {move.key} is moving this claim already, and {_how(move)}: leave {option} "
            f"out to follow it, or abort it with --abort {move.name}"
        )
    if wish.no_warm and move.spec.warm and move.told.phase in _BEFORE_PODS_STOP:
        return (
            f"VolumeMove {move.key} is moving this claim already, and takes snapshots before pods "
            f"stop: leave --no-warm out to follow it, or abort it with --abort {move.name}"
        )
    if wish.check and not move.spec.check:
        return (
            f"VolumeMove {move.key} is moving this claim already, and does not check its new "
            f"volume: leave --check out to follow it, or abort it with --abort {move.name}"
        )
    if wish.keep_source and move.spec.keep_source != wish.keep_source:
        return (
            f"VolumeMove {move.key} is moving this claim already, and keeps the old volume for "
            f"{move.spec.keep_source}: leave --keep-source out to follow it"
        )
    return None


def _how(move: VolumeMove) -> str:
    if move.stops_pods:
        return "restarts its pods" if move.restarts else "scales the owners of its pods down"
    return "waits until its pods are stopped by somebody"


def described(to: MoveTarget) -> str:
    """What is to change, for one cell or a pair of parentheses."""
    words = {
        "zone": "zone {}",
        "storageClassName": "class {}",
        "encrypted": "encrypted",
        "kmsKeyId": "key {}",
        "size": "size {}",
        "fsType": "file system {}",
        "form": "CSI form",
        "source": "back before {}",
    }
    said = to_json(to)
    return ", ".join(words.get(key, f"{key} {{}}").format(value) for key, value in said.items())


def of_set(moves: Iterable[VolumeMove], set_name: str) -> list[VolumeMove]:
    """The moves under way that were made for a StatefulSet, by name."""
    label = set_name[:_LONGEST_LABEL]
    found = (each for each in moves if each.labels.get(MOVED_SET) == label)
    return sorted(
        (each for each in found if not each.spec.dry_run and not has_ended(each)),
        key=lambda each: each.name,
    )


def moved_with(moves: Iterable[VolumeMove], move: VolumeMove) -> list[VolumeMove]:
    """The other moves under way that go by a move, and it by them."""
    return [
        each
        for each in moves
        if each.is_under_way
        and each.spec.claim_name in move.spec.moved_with
        and move.spec.claim_name in each.spec.moved_with
    ]


def done_with(moves: Iterable[VolumeMove], move: VolumeMove) -> list[VolumeMove]:
    """The other moves that are done, and with which a move that is done went: the claims' last."""
    last: dict[str, VolumeMove] = {}
    for each in sorted(moves, key=lambda each: each.told.phase_since):
        if each.told.phase == Phase.DONE and not each.spec.dry_run:
            last[each.spec.claim_name] = each
    others = (last.get(name) for name in move.spec.moved_with)
    return [
        each
        for each in others
        if each is not None
        and move.spec.claim_name in each.spec.moved_with
        and (each.spec.to == move.spec.to or (each.goes_back and move.goes_back))
    ]


def refused(planned: Sequence[VolumeMove]) -> str | None:
    """Why claims cannot be moved, by their dry runs, as a sentence; None if all can be."""
    found = [each for each in planned if each.told.phase != Phase.PLANNED]
    if not found:
        return None
    others = [each.spec.claim_name for each in found[1:]]
    more = f"; nor can {listed(others, 'and')}" if others else ""
    return f"claim {found[0].claim_key} cannot be moved so: {found[0].told.message}{more}"


def too_small(move: VolumeMove, used_bytes: int) -> str | None:
    """Why a claim's files do not come into its new volume, as a sentence; None if they may."""
    plan = move.told.plan
    size_gib = plan.target.size_gib if plan is not None and plan.copies_files else 0
    if not size_gib or used_bytes <= size_gib * GIB:
        return None
    used = usage_rules.size(used_bytes)
    return (
        f"claim {move.claim_key} cannot be moved so: its files take {used}, and the new volume "
        f"would have {size_gib}Gi: ask for a larger size"
    )


def done_before(moves: Sequence[VolumeMove], wish: Wish, claim: Claim) -> VolumeMove | None:
    """The move that has given the claim the volume that it has now, and all that is asked."""
    return next(
        (
            each
            for each in moves
            if each.told.phase == Phase.DONE
            and each.spec.to == wish.to
            and each.spec.claim_name == wish.claim_name
            and each.persistent_volume_name == claim.spec.volume_name
        ),
        None,
    )


def keeps_otherwise(wish: Wish, done: VolumeMove) -> str | None:
    """Why a move that is done does not keep the old volume for as long as asked; None if it does.

    The claim is moved, so there is nothing to make; whoever is told "done" would rely on it.
    """
    if not wish.keep_source or wish.keep_source == done.spec.keep_source:
        return None
    if not done.told.source_kept_until:
        return (
            f"VolumeMove {done.key} has done this, and does not keep the old volume any more: "
            "leave --keep-source out"
        )
    patch = json.dumps({"spec": {"keepSource": wish.keep_source}})
    command = shell(
        "kubectl -n {} patch volumemove {} --type=merge -p {}",
        *(done.metadata.namespace, done.name, patch),
    )
    return (
        f"VolumeMove {done.key} has done this, and keeps the old volume for "
        f"{done.spec.keep_source}: leave --keep-source out, or change it with {command}"
    )


def changed_since(confirmed: VolumeMove, move: VolumeMove) -> bool:
    """Whether the plan that a move goes by is another than the one that somebody agreed to."""
    before, now = confirmed.told, move.told
    if now.plan is None or before.plan is None:
        return False
    # ``kept`` says whether anything is lost.
    return (before.plan.source, before.plan.target, before.plan.stops, before.source) != (
        now.plan.source,
        now.plan.target,
        now.plan.stops,
        now.source,
    ) or before.kept != now.kept
