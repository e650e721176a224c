"""Volumes that grow and change at AWS's documented quota, and snapshots of them.

The claims ask for both in one change each. A volume takes one modification at a time and four a
day, so that the number of calls counts as much as the time.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from provisioner.ec2.limiter import documented
from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox.snapshots import GROUP
from provisioner.sandbox.strict_ec2.world import REAL_DELAYS
from tests.bench import phases
from tests.bench.hands import BenchError, Eye, Seen
from tests.bench.phases import CLAIMS, Phase
from tests.bench.world import OURS, RAISED, ZONES, World, world

SNAPSHOT_S = 10.0  # from the call until EC2 says that a snapshot is complete
CALL_S = 0.25
MODIFY_S = REAL_DELAYS["modify_s"]
_ATTRIBUTES_CLASSES = "/apis/storage.k8s.io/v1/volumeattributesclasses"
_SNAPSHOTS = f"{GROUP}/namespaces/default/volumesnapshots"
_CONTENTS = f"{GROUP}/volumesnapshotcontents"
_SNAPSHOT_CLASSES = f"{GROUP}/volumesnapshotclasses"
_API_VERSION = "snapshot.storage.k8s.io/v1"
_FAST = "fast"


@dataclass(frozen=True, slots=True)
class Modified:
    """What it took.

    Attributes:
        grown: the phase in which claims grew and changed.
        bucket_s: when EC2's own bucket lets the last modification through.
        taken: the phase in which snapshots were taken.
        late: of each snapshot, from EC2's word that it is complete to its content's.
    """

    grown: Phase
    bucket_s: float
    taken: Phase
    late: tuple["Late", ...]

    @property
    def floor_s(self) -> float:
        """When the last volume can have what was wanted, as EC2 then begins to modify it."""
        return self.bucket_s + MODIFY_S


class Late(NamedTuple):
    """Seconds, and how often EC2 was asked for it meanwhile: the first answer has shown it."""

    seconds: float
    looks: int


async def measure(parent: Path, binaries: Path, claims: int, snapshots: int) -> Modified:
    """Grow and change so many claims at once, then take so many snapshots at once."""
    rate = documented("ModifyVolume")
    bucket_s = max(0.0, claims - rate.burst) / rate.per_s
    async with world(parent, binaries, instances=len(ZONES), throttle=RAISED) as made:
        await made.start(OURS)
        await phases.make_class(made)
        await phases.bind(made, claims)
        # Another process, which has learnt nothing of the raised quota.
        await made.stop()
        made.ec2.control(throttle="documented", log=True)
        await made.start(OURS)
        grown = await _grow(made, claims)
        # All calls take equally long, so that it is known when a snapshot was complete.
        made.ec2.control(latency=[CALL_S, CALL_S], delays={"snapshot_s": SNAPSHOT_S})
        taken, late = await _take(made, snapshots)
    return Modified(grown, bucket_s, taken, late)


async def _grow(made: World, count: int) -> Phase:
    body = {"driverName": EBS_DRIVER, "parameters": {"throughput": "250"}}
    await made.hands.send("POST", _ATTRIBUTES_CLASSES, {"metadata": {"name": _FAST}, **body})
    wish = {
        "resources": {"requests": {"storage": "2Gi"}},
        "volumeAttributesClassName": _FAST,
    }
    async with phases.measured(made, "grown and changed", count) as phase:
        requests = (("PATCH", f"{CLAIMS}/data-{n}", {"spec": wish}) for n in range(count))
        await phases.until(made, phase, Eye(made.hands, CLAIMS, is_modified), requests)
    return phase


def is_modified(_: str, seen: Seen) -> bool:
    """Whether all is done but what only a node can do."""
    of_size = (seen.status.allocated_resource_statuses or {}).get("storage")
    of_class = seen.status.current_volume_attributes_class_name
    return (of_size, of_class) == ("NodeResizePending", _FAST)


def is_ready(_: str, seen: Seen) -> bool:
    """Whether a snapshot can be restored."""
    return bool(seen.status.ready_to_use)


async def _take(made: World, count: int) -> tuple[Phase, tuple[Late, ...]]:
    kind = {"apiVersion": _API_VERSION, "kind": "VolumeSnapshotClass"}
    rules = {"driver": EBS_DRIVER, "deletionPolicy": "Delete"}
    await made.hands.send("POST", _SNAPSHOT_CLASSES, kind | rules | {"metadata": {"name": _FAST}})
    eye = Eye(made.hands, _CONTENTS, is_ready)
    async with phases.measured(made, "snapshots ready", count) as phase:
        requests = (("POST", _SNAPSHOTS, _snapshot(number)) for number in range(count))
        await phases.until(made, phase, eye, requests)
    contents = msgspec.json.decode(await made.hands.send("GET", _CONTENTS), type=_Contents)
    log = [call for call in made.ec2.log() if call["outcome"].startswith("ok")]
    complete_s = {
        call["params"]["VolumeId"]: call["at_s"] + CALL_S + SNAPSHOT_S
        for call in log
        if call["action"] == "CreateSnapshot"
    }
    looks = [
        (call["at_s"] + CALL_S, frozenset(call["params"].values()))
        for call in log
        if call["action"] == "DescribeSnapshots"
    ]
    ready = {
        each.status.snapshot_handle: (
            complete_s[each.spec.source.volume_handle],
            eye.at_s[each.metadata.name],
        )
        for each in contents.items
    }
    return phase, lateness(ready, looks)


def lateness(
    ready: Mapping[str, tuple[float, float]], looks: Sequence[tuple[float, Collection[str]]]
) -> tuple[Late, ...]:
    """How late after EC2 each content said that its snapshot is ready.

    Args:
        ready: by snapshot, when EC2 said so and when its content did. All by the machine's clock.
        looks: when EC2 was looked at and answered, and at which snapshots.

    Raises:
        BenchError: one was ready before EC2 can have said so.
    """
    late = tuple(
        Late(
            said_s - complete_s,
            sum(complete_s <= at_s < said_s and snapshot in ids for at_s, ids in looks),
        )
        for snapshot, (complete_s, said_s) in ready.items()
    )
    if early_s := max((-each.seconds for each in late if each.seconds < 0), default=0.0):
        raise BenchError(f"a snapshot was ready {early_s:.1f} s before EC2 said so")
    return late


def _snapshot(number: int) -> dict[str, Any]:
    return {
        "apiVersion": _API_VERSION,
        "kind": "VolumeSnapshot",
        "metadata": {"name": f"data-{number}"},
        "spec": {
            "volumeSnapshotClassName": _FAST,
            "source": {"persistentVolumeClaimName": f"data-{number}"},
        },
    }


class _Source(msgspec.Struct, rename="camel"):
    volume_handle: str


class _Spec(msgspec.Struct):
    source: _Source


class _Meta(msgspec.Struct):
    name: str


class _Status(msgspec.Struct, rename="camel"):
    snapshot_handle: str


class _Content(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status


class _Contents(msgspec.Struct):
    items: list[_Content]
