"""What a run has made and found, in a file: written before each call, so that a kill loses nothing.

One JSON object a line, each flushed to the disk before anything else happens. A torn last line is
of a call that was not sent. The file is locked for as long as its run lives.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from provisioner.conformance.cluster.steps import BY_NAME
from provisioner.conformance.probe import Confirmed, Finding, NotRun, Refuted

_RUN = re.compile(r"\d{8}t\d{6}-[0-9a-f]{6}")
_FINDINGS: Mapping[str, type[Confirmed] | type[Refuted] | type[NotRun]] = {
    "confirmed": Confirmed,
    "refuted": Refuted,
    "not run": NotRun,
}


class JournalError(Exception):
    """A journal that cannot be used; one clear sentence."""


class InCluster(msgspec.Struct, frozen=True):
    """The cluster in which steps are done, and how.

    Attributes:
        kubeconfig: a path, or several of them.
        context: a name in it.
        image: of the pods.
        file_system: of the volumes.
        uid: what tells this cluster from all others, "" while it was not asked.
        nodes: on which the pods run.
    """

    kubeconfig: str
    context: str
    image: str
    file_system: str
    uid: str = ""
    nodes: tuple[str, ...] = ()


class Begun(msgspec.Struct, tag="begun", frozen=True):
    """The first line: what this run is about."""

    run: str
    version: str
    endpoint: str
    region: str
    zone: str
    zones: tuple[str, ...]
    instances: tuple[str, ...]
    instance_type: str | None
    rules: tuple[str, ...]
    at: datetime
    cluster: InCluster | None = None


class Entered(msgspec.Struct, tag="entered", frozen=True):
    """From now on there may be something in the cluster."""

    at: datetime


class Departed(msgspec.Struct, tag="departed", frozen=True):
    """Everything in the cluster is gone."""

    at: datetime


class Started(msgspec.Struct, tag="started", frozen=True):
    """A probe starts; what it uses counts from now on."""

    rule: str


class Making(msgspec.Struct, tag="making", frozen=True):
    """Something is going to be made."""

    number: int
    kind: str
    operation: str
    at: datetime


class Made(msgspec.Struct, tag="made", frozen=True):
    """What came of it; no ids: EC2 refused."""

    number: int
    ids: tuple[str, ...]


class Found(msgspec.Struct, tag="found", frozen=True):
    """A probe has ended."""

    rule: str
    verdict: str
    sentence: str
    seconds: float | None = None


class Swept(msgspec.Struct, tag="swept", frozen=True):
    """Everything of this run is gone."""

    at: datetime


Line = Begun | Entered | Departed | Started | Making | Made | Found | Swept
_DECODER = msgspec.json.Decoder(Line)


@dataclass(slots=True)
class Story:
    """What the lines say together.

    Attributes:
        begun: the first line.
        made: the id of each thing, and its kind.
        open: what may have been made, or is being made, by the number of its note.
        last_at: when the last thing was made that EC2 has told of.
        findings: the last one of each rule, and of each step in the cluster.
        seconds: how long steps have taken.
        in_cluster: whether there may be something in the cluster.
        started: how often each probe has started.
        is_swept: whether everything is known to be gone.
        last_number: of the notes.
    """

    begun: Begun
    made: dict[str, str] = field(default_factory=dict)
    open: dict[int, Making] = field(default_factory=dict)
    last_at: datetime | None = None
    findings: dict[str, Finding] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    in_cluster: bool = False
    started: dict[str, int] = field(default_factory=dict)
    is_swept: bool = False
    last_number: int = 0
    _kinds: dict[int, str] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Take one more line in."""
        match line:
            case Begun():
                self.begun = line
            case Entered():
                self.in_cluster, self.is_swept = True, False
            case Departed():
                self.in_cluster = False
            case Started(rule=rule):
                self.started[rule] = self.started.get(rule, 0) + 1
            case Making():
                self.open[line.number] = line
                self.is_swept = False
                self.last_number = line.number
                self._kinds[line.number] = line.kind
            case Made(number=number, ids=ids):
                making = self.open.pop(number, None)
                if making is not None and ids:
                    self.last_at = making.at
                self.made.update(dict.fromkeys(ids, self._kinds.get(number, "volume")))
            case Found(rule=rule, verdict=verdict, sentence=sentence):
                self.findings[rule] = _FINDINGS[verdict](sentence)
                self.seconds.pop(rule, None)  # of an earlier try
                if line.seconds is not None:
                    self.seconds[rule] = line.seconds
            case Swept():
                self.is_swept = True
                self.open.clear()


def verdict_of(finding: Finding) -> str:
    """The word for a finding."""
    return next(word for word, kind in _FINDINGS.items() if isinstance(finding, kind))


def sentence_of(finding: Finding) -> str:
    """What was seen, or why nothing was."""
    return finding.why if isinstance(finding, NotRun) else finding.seen


def new_run(now: datetime) -> str:
    """An id for a run; it sorts by time."""
    return f"{now:%Y%m%dt%H%M%S}-{secrets.token_hex(3)}"


def is_run(text: str) -> bool:
    """Whether a text has the form of a run's id; it becomes a file's name and a tag."""
    return _RUN.fullmatch(text) is not None


class Journal:
    """The file of one run, locked.

    Attributes:
        path: of the file.
        story: what it says.
    """

    def __init__(self, path: Path, file: BinaryIO, story: Story) -> None:
        self.path = path
        self.story = story
        self._file = file

    @classmethod
    def begin(cls, folder: Path, begun: Begun) -> "Journal":
        """Start the file of a new run.

        Raises:
            JournalError: it cannot be written.
        """
        path = folder / f"{begun.run}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = path.open("xb")
        except OSError as failure:
            raise JournalError(f"the journal {path} cannot be written: {failure}") from failure
        try:
            _lock(file, path)
            made = cls(path, file, Story(begun))
            made._write(begun)
        except BaseException:
            file.close()
            raise
        return made

    @classmethod
    def resume(cls, folder: Path, run: str) -> "Journal":
        """Open the file of an earlier run.

        Raises:
            JournalError: there is none, it says nothing, or its run still lives.
        """
        path = folder / f"{run}.jsonl"
        try:
            file = path.open("r+b")
        except OSError as failure:
            raise JournalError(f"the journal {path} cannot be opened: {failure}") from failure
        try:
            _lock(file, path)
            raw = file.read()
            whole = raw[: raw.rfind(b"\n") + 1]
            story = _read(whole, path)
            file.truncate(len(whole))
            file.seek(len(whole))
        except BaseException:
            file.close()
            raise
        return cls(path, file, story)

    def is_ours(self, each: str) -> bool:
        """Whether this run has made it."""
        return each in self.story.made

    async def making(self, kind: str, operation: str) -> int:
        """Note that something is going to be made; returns the number of this note."""
        number = self.story.last_number + 1
        self._write(Making(number, kind, operation, datetime.now(UTC)))
        return number

    async def made(self, number: int, ids: Sequence[str]) -> None:
        """Note what came of it; no ids: EC2 refused."""
        self._write(Made(number, tuple(ids)))

    async def started(self, rule: str) -> None:
        """Note that a probe starts."""
        self._write(Started(rule))

    async def found(self, rule: str, finding: Finding, seconds: float | None = None) -> None:
        """Note what a probe or a step has found."""
        self._write(Found(rule, verdict_of(finding), sentence_of(finding), seconds))

    async def entered(self) -> None:
        """Note that something is going to be made in the cluster."""
        self._write(Entered(datetime.now(UTC)))

    async def left_cluster(self) -> None:
        """Note that everything in the cluster is gone."""
        self._write(Departed(datetime.now(UTC)))

    async def swept(self) -> None:
        """Note that everything is gone."""
        self._write(Swept(datetime.now(UTC)))

    def close(self) -> None:
        """Give the lock back."""
        self._file.close()

    def _write(self, line: Line) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.story.add(line)


def stories(folder: Path) -> Iterator[Story]:
    """All runs of this machine, old first; what cannot be read says nothing about any run."""
    for path in sorted(folder.glob("*.jsonl")):
        raw = path.read_bytes()
        with suppress(JournalError):
            yield _read(raw[: raw.rfind(b"\n") + 1], path)


def is_alive(folder: Path, run: str) -> bool:
    """Whether a process holds the journal of a run."""
    with (folder / f"{run}.jsonl").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_clean(story: Story) -> bool:
    """Whether nothing of this run can be left in EC2."""
    return story.is_swept or not (story.made or story.open or story.in_cluster)


def is_finished(story: Story) -> bool:
    """Whether nothing is left to do or to delete."""
    steps = BY_NAME if story.begun.cluster is not None else ()
    return is_clean(story) and all(name in story.findings for name in (*story.begun.rules, *steps))


def _read(raw: bytes, path: Path) -> Story:
    try:
        lines = [_DECODER.decode(line) for line in raw.splitlines()]
    except (msgspec.DecodeError, msgspec.ValidationError) as failure:
        raise JournalError(f"{path} is not a journal of ours: {failure}") from failure
    if not lines or not isinstance(lines[0], Begun):
        raise JournalError(f"{path} does not say what its run was about: delete it")
    story = Story(lines[0])
    for line in lines[1:]:
        story.add(line)
    return story


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as failure:
        raise JournalError(
            f"the run {path.stem} is still under way: another process holds its journal"
        ) from failure
