"""What a probe has sent and made, and which refusals of the strict EC2 it has met."""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from provisioner.conformance.probe import Probe
from provisioner.sandbox.strict_ec2.errors import Ec2Error

STRICT_EC2 = Path(__file__).parents[2] / "provisioner/sandbox/strict_ec2"
_HELPERS = {"invalid", "combination", "missing", "dry_run", "_over", "throttled", "Ec2Error"}
# By these the lab waits and cleans up; a probe may leave them out (``Probe.actions``).
_OF_THE_LAB = {
    "DeleteSnapshot",
    "DeleteVolume",
    "DescribeAvailabilityZones",
    "DescribeSnapshots",
    "DescribeVolumes",
    "DetachVolume",
}


class Sent(NamedTuple):
    """One call; ``reply`` is None where it was refused."""

    action: str
    params: Mapping[str, Any]
    reply: Mapping[str, Any] | None


def excess(probe: Probe, sent: list[Sent]) -> list[str]:
    """What the calls of one run have used beyond what the probe declares."""
    uses = probe.uses
    allowed = {
        "volumes": sum(each.size_gib * each.count for each in uses.volumes),
        "copies": uses.copied_gib,
        "snapshots": uses.snapshots_gib,
    }
    made = _made_gib(sent)
    found = [f"{gib} GiB of {kind}" for kind, gib in made.items() if gib > allowed[kind]]
    called = {each.action for each in sent}
    found += sorted(called - set(probe.actions) - _OF_THE_LAB)
    attaches = any(each.action == "AttachVolume" and each.reply is not None for each in sent)
    return found + ["an instance"] * (attaches and not uses.needs_instance)


def _made_gib(sent: list[Sent]) -> dict[str, int]:
    things: dict[str, tuple[str, int]] = {}
    grown = 0
    for action, _, reply in sent:
        match action, reply:
            case "CreateVolume", {"VolumeId": each, "Size": gib}:
                things[each] = ("volumes", gib)
            case "CopyVolumes", {"Volumes": copies}:
                things |= {each["VolumeId"]: ("copies", each["Size"]) for each in copies}
            case "CreateSnapshot", {"SnapshotId": each, "VolumeSize": gib}:
                things[each] = ("snapshots", gib)
            case "ModifyVolume", {"VolumeModification": {"OriginalSize": old, "TargetSize": new}}:
                grown += max(0, new - old)
    made = dict.fromkeys(("volumes", "copies", "snapshots"), 0)
    for kind, gib in things.values():
        made[kind] += gib
    made["volumes"] += grown
    return made


class Refusal(NamedTuple):
    """A statement of the strict EC2 that refuses something."""

    module: str
    function: str
    first: int
    last: int
    text: str

    @property
    def name(self) -> str:
        """What it is known by, whatever line it stands in."""
        return f"{self.module}.{self.function}: {self.text}"


def refusals() -> Iterator[Refusal]:
    """Every one that is raised."""
    for path in sorted(STRICT_EC2.glob("*.py")):
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                        yield from _refusal(path.stem, function.name, node, node.exc)


def _refusal(module: str, function: str, node: ast.Raise, call: ast.Call) -> Iterator[Refusal]:
    name = getattr(call.func, "id", "")
    if name in _HELPERS or name.endswith("_not_found"):
        text = " ".join([name, *(ast.unparse(each) for each in call.args)])
        yield Refusal(module, function, node.lineno, node.end_lineno or node.lineno, text[:60])


def note_refusals() -> set[tuple[str, int]]:
    """From now on, the module and the line from which each refusal comes."""
    lines: set[tuple[str, int]] = set()
    begin = Ec2Error.__init__

    def note(self: Ec2Error, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        frame = sys._getframe(1)
        while frame.f_code.co_name in _HELPERS or frame.f_code.co_filename.endswith("errors.py"):
            assert frame.f_back is not None
            frame = frame.f_back
        lines.add((Path(frame.f_code.co_filename).stem, frame.f_lineno))

    Ec2Error.__init__ = note  # type: ignore[method-assign]
    return lines


def unmet(lines: set[tuple[str, int]]) -> list[str]:
    """The refusals that come from none of these lines."""
    return [
        each.name
        for each in refusals()
        if not any(
            module == each.module and each.first <= line <= each.last for module, line in lines
        )
    ]
