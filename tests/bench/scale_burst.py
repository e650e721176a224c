"""A burst of claims on top of what stands, beside the same burst in an empty cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.bench import phases
from tests.bench.go_profile import Profile
from tests.bench.phases import Phase
from tests.bench.world import RAISED, World

BURST = 1_000
PROFILED_S = 20
LIMIT = 1.3
"""So many times as long as in an empty cluster."""

_BINDER = "pkg/controller/volume/persistentvolume."
_COMPARISON = "FindMatchingVolume"
_PARTS = {
    "kube-apiserver": "kube-apiserver",
    "etcd": "etcd",
    "kube-controller-manager": "kube-controller-manager",
    "EC2": "EC2",
    "contestant": "ours",
    "bench": "the bench",
}


@dataclass(frozen=True, slots=True)
class Bursts:
    """The four phases, twice.

    Attributes:
        large: on top of what stands.
        empty: in an empty cluster.
        profiles: of kube-controller-manager, in the first ``PROFILED_S`` of the first phase of each.
    """

    large: Sequence[Phase]
    empty: Sequence[Phase]
    profiles: tuple[Profile, Profile] = (Profile(), Profile())


class _Spec(msgspec.Struct, rename="camel"):
    volume_name: str = ""


class _Claim(msgspec.Struct):
    spec: _Spec


class _Claims(msgspec.Struct):
    items: list[_Claim]


async def burst(made: World, count: int) -> list[Phase]:
    """Claims bound, volumes attached, detached, gone, at a raised quota.

    Nothing else may be in the namespace of the claims.
    """
    made.ec2.control(throttle=RAISED)
    done = [await phases.bind(made, count)]
    bodies = await _attachments(made)
    done += [await phases.attach(made, bodies), await phases.detach(made, bodies)]
    done.append(await phases.delete(made, count))
    return done


async def _attachments(made: World) -> list[dict[str, Any]]:
    """One for each volume of the burst: a list of all volumes is what others must not ask for."""
    claims = msgspec.json.decode(await made.hands.send("GET", phases.CLAIMS), type=_Claims).items
    names = [each.spec.volume_name for each in claims]
    found = [await made.hands.send("GET", f"{phases.VOLUMES}/{name}") for name in names]
    return phases.attachments_of(found, made.instances)


def told(phase: Phase) -> str:
    """One line, while the others still run."""
    spent = ", ".join(
        f"{name} {phase.cpu_within_s.get(part, 0.0):.1f}" for part, name in _PARTS.items()
    )
    return f"{phase.name} {phase.seconds:.1f} s, median {phase.median_s:.1f}; CPU s: {spent}"


def markdown(found: Bursts) -> str:
    """Two tables: each phase in both clusters, in seconds and in CPU."""
    lines = [
        f"### {found.large[0].objects:,} claims on top",
        "",
        "| phase | here, s | median | in an empty cluster, s | median | times | limit |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for here, there in zip(found.large, found.empty, strict=True):
        times = here.seconds / there.seconds
        missed = ", **missed**" if times > LIMIT else ""
        lines.append(
            f"| {here.name} | {here.seconds:.1f} | {here.median_s:.1f} "
            f"| {there.seconds:.1f} | {there.median_s:.1f} | {times:.2f}{missed} | {LIMIT} |"
        )
    lines += ["", f"| CPU within these seconds, s | cluster | {' | '.join(_PARTS.values())} |"]
    lines.append(f"|---|---{'|--:' * len(_PARTS)}|")
    for here, there in zip(found.large, found.empty, strict=True):
        lines += [_cpu(here, "this one"), _cpu(there, "an empty one")]
    if any(each.samples for each in found.profiles):
        large, empty = map(_share, found.profiles)
        what = f"A CPU profile of kube-controller-manager, in the first {PROFILED_S} s until Bound"
        lines += ["", f"{what}: {large}; in the empty cluster {empty}."]
    return "\n".join(lines)


def _share(profile: Profile) -> str:
    total = sum(count for _, count in profile.samples)
    return (
        f"the PV controller is on the stack in {profile.share(_BINDER):.0%} of {total:,} samples, "
        f"its comparison of a claim with every PersistentVolume in {profile.share(_COMPARISON):.0%}"
    )


def _cpu(phase: Phase, cluster: str) -> str:
    spent = " | ".join(f"{phase.cpu_within_s.get(part, 0.0):.1f}" for part in _PARTS)
    return f"| {phase.name} | {cluster} | {spent} |"
