"""What a day came to: the goals that were missed, and the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Found = dict[str, Any]

_MOST_GROWTH = 0.05
# What is in flight at the two moments, of a handful of volumes, is no growth.
_NOISE, _NOISE_MIB = 1_000, 0.2
_RECOVERED_WITHIN_S = 600.0
_MOST_THROTTLED = 0.02
_DESCRIBES_A_SECOND = 3.0
_CHANGES = ("CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume")


def missed(found: Found) -> list[str]:
    """Sentences about goals that were not reached."""
    hours = found["hours"]
    first, last = hours[0], hours[-1]
    told = [*found["wrong"], *found["errors"]]
    growth = last["held_objects"] - first["held_objects"]
    if growth > first["held_objects"] * _MOST_GROWTH + _NOISE:
        told.append(
            f"the controller holds {last['held_objects']} objects in the last hour, "
            f"{first['held_objects']} in the first"
        )
    growth_mib = last["held_mib"] - first["held_mib"]
    if growth_mib > first["held_mib"] * _MOST_GROWTH + _NOISE_MIB:
        told.append(
            f"what the controller holds takes {last['held_mib']:.1f} MiB in the last hour, "
            f"{first['held_mib']:.1f} in the first"
        )
    for each in found["troubles"]:
        if each["recovered_s"] > _RECOVERED_WITHIN_S:
            at_least = (
                f"{each['what']}: some still waited {each['recovered_s']:.0f} s after its end"
            )
            told.append(at_least)
    if found["late_in_calm"]:
        told.append(f"in calm, {found['late_in_calm']} waited for more than a minute")
    told += _throttled(found)
    if found["busiest"].get("DescribeVolumes", 0.0) > _DESCRIBES_A_SECOND:
        told.append(f"{found['busiest']['DescribeVolumes']:.1f} DescribeVolumes a second")
    return told


def _throttled(found: Found) -> Iterator[str]:
    """Of all calls, and of each that changes something: looks are many more."""
    calls, throttled = found["calls"], found["throttled"]
    counted = {name: (throttled.get(name, 0), calls.get(name, 0)) for name in _CHANGES}
    counted["calls"] = (sum(throttled.values()), sum(calls.values()))
    for name, (refused, all_) in counted.items():
        if refused > all_ * _MOST_THROTTLED:
            yield f"{refused} of {all_} {name} were throttled"


def hour_line(found: Found) -> str:
    """The last hour in one line, and what has gone wrong in all hours until then."""
    hour = found["hours"][-1]
    took = ", ".join(
        f"{name} {each[0]:,} (median {each[1]:.1f}, longest {hour['longest_s'][name]:.1f} s)"
        for name, each in hour["took_s"].items()
    )
    wrong = ", ".join(f"{n} {what}" for what, n in sorted(hour["wrong"].items())) or "nothing"
    troubles = ", ".join(
        f"{each['what']} {each['recovered_s']:.0f} s" for each in found["troubles"]
    )
    return (
        f"hour {hour['hour']:g}: {took}; {hour['waiting']} wait, for {hour['longest_wait_s']:.0f} s "
        f"at most; wrong now: {wrong}, until now {len(found['wrong'])}, errors "
        f"{len(found['errors'])}; holds {hour['held_objects']:,} objects, {hour['held_mib']:.1f} "
        f"MiB, {hour['pushed_out']:,} pushed out of what is shared, leads for "
        f"{hour['led_for_s']:.0f} s; calls {sum(hour['calls'].values()):,}, "
        f"throttled {hour['throttled']:,}; in queues {hour['depth']}; late in calm until now "
        f"{found['late_in_calm']}; the last that waited, after the end of: {troubles or 'none'}; "
        f"CPU {hour['cpu_s']:.0f} s, in all {found['cpu_s']:.0f} s"
    )


def markdown(found: Found) -> str:
    """Title and tables."""
    hours = found["hours"]
    lines = [
        f"## {found['volumes']:,} volumes for {len(hours)} simulated hours",
        _totals(found),
        _table(
            (
                "hour",
                *_PHASES,
                "EC2 calls, throttled",
                "objects held",
                "MiB",
                "in queues",
                "CPU, s",
            ),
            [_hour(each) for each in hours],
        ),
        _table(
            ("trouble", "waited > 60 s at its end", "the last of them, s after", "in queues then"),
            [_trouble(each) for each in found["troubles"]],
        ),
    ]
    told = missed(found)
    lines.append("All goals were reached." if not told else "Missed:\n" + "\n".join(told[:50]))
    return "\n\n".join(lines)


_PHASES = ("bound", "attached", "detached", "gone")


def _totals(found: Found) -> str:
    made = sum(each["took_s"].get("bound", [0])[0] for each in found["hours"])
    per = ", ".join(f"{name} {found['calls'].get(name, 0):,}" for name in _CHANGES)
    rest = sum(found["calls"].values()) - sum(found["calls"].get(name, 0) for name in _CHANGES)
    return (
        f"{made:,} claims Bound, {found['ended']:,} gone, {found['replaced']:,} nodes replaced, "
        f"{found['leaders']} leaders. {per}, all others {rest:,}; busiest half minute: "
        f"{found['busiest'].get('DescribeVolumes', 0.0):.1f} DescribeVolumes a second. "
        f"{found['cpu_s']:.0f} s of CPU, the simulation's included."
    )


def _hour(each: Found) -> tuple[str, ...]:
    took = each["took_s"]
    phases = (
        f"{took[name][0]:,}: {took[name][1]:.1f}, {took[name][2]:.1f}" if name in took else ""
        for name in _PHASES
    )
    return (
        f"{each['hour']:g}",
        *phases,
        f"{sum(each['calls'].values()):,}, {each['throttled']:,}",
        f"{each['held_objects']:,}",
        f"{each['held_mib']:.1f}",
        f"{each['depth']}",
        f"{each['cpu_s']:.0f}",
    )


def _trouble(each: Found) -> tuple[str, ...]:
    behind = f"{each['behind']}, at most {each['most_behind']}"
    return each["what"], behind, f"{each['recovered_s']:.0f}", f"{each['depth_after']}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
