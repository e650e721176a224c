"""``/_control``: what a test or a demo asks of EC2, and what it can read back.

``GET`` answers with ``report``. With ``?log=1`` the report has the log too: all calls, or those of
the actions ``&action=A,B``, or those that have ``&about=TEXT`` in a parameter. ``POST`` of a JSON
object first does what its keys ask, ``reset`` before all others:

- ``reset: true``: no volumes, instances, tokens, faults, counts; settings of the command line.
- ``latency``: ``real`` (100-400 ms a call; create 1.5 s, attach 2 s, detach 3 s), ``none``, or
  ``[least_s, most_s]`` for the calls alone.
- ``delays``: any of ``world.Delays``: ``create_s``, ``attach_s``, ``detach_s``, ``delete_s``,
  ``visible_after_s``; ``modify_s`` (until optimizing: the new size shows), ``optimize_s`` (from
  there until completed), ``modification_visible_after_s`` (until then the one before is shown),
  ``modified_shown_after_s`` (by so much DescribeVolumes lags behind optimizing);
  ``snapshot_s`` (until completed), ``snapshot_saves_s`` (so much less while another one of the
  volume is there), ``initialize_s`` (until a restored or copied volume has all of
  its blocks; a copy is in progress so long), ``initialization_known_after_s`` (told so late),
  ``fast_restore_s`` (from completed until fast restores are enabled).
- ``throttle``: ``documented``, ``none``, ``xN``, or ``{action: [burst, per_s]}``; buckets full.
- ``faults``: rules to add (``faults.Fault``'s fields), null to drop all:
  ``[{"action": "AttachVolume", "match": {"VolumeId": "vol-*"}, "n": 2, "when": "after",
  "do": "reset"}]``; ``key`` is the access key of the calls, by default any; ``do`` is error
  (``code``, ``message``, ``http_status``), reset, hang, html or delay (``delay_s``). A hanging call
  ends at the next reset, at the latest after ``hang_max_s``.
- ``capacity``: ``[{"zone": pattern, "type": pattern, "code": …}]``: creates that find none.
- ``quotas``: ``{"volumes": n, "gib": {type: n}, "iops": {type: n}, "modifying_gib": {type: n}}``
  of a region.
- ``modification_budget`` (4) modifications of a volume in any ``modification_window_s`` (24 h);
  ``modification_refusal``: what EC2 says then, with the fields ``{volume_id}`` and ``{next_at}``.
- ``iops_ceilings``: ``{type: n}``, the most IOPS of a volume in a region with limits of its own.
- ``attach_limits``: ``{instance_type: n}``, the root volume counts.
- ``instance_types``: ``{new type: known type}``: types that have come since, each like another.
- ``outposts``: ``{ARN: {"zone": name, "instances": [ids]}}``: none otherwise.
- ``snapshot_limits``: any of ``interval_s`` (15, of one volume), ``pending_per_volume`` (5),
  ``pending`` (100) and ``total`` (100,000) of a region.
- ``snapshots_in_use``: ids that an image uses.
- ``stuck_attaching``, ``stuck_detaching``, ``failing_creates``, ``failing_modifications``,
  ``failing_snapshots``: so many of the next calls leave an attachment attaching for ever, busy
  until forced, a volume in state error, a modification failed, a snapshot in state error.
- ``vanishing_creates``: so many of the next volumes (made empty, restored, copied) vanish after
  creation, as with a KMS key that cannot be used.
- ``copies_in_progress`` (5), ``fast_restore_snapshots`` (5) and ``initialization_rate_limit_mibps``
  (5,000) of a region.
- ``refused_keys``: ``{access key: code}``, such as ExpiredToken; ``accounts``: ``{access key:
  account id}``, which has volumes and instances of its own (all other keys are of one account).
- ``token_per_zone``: false makes a client token in another zone a mismatch, not a second volume.
- ``advance_s``: moves the clock on: what would have happened by then has happened. null sets it
  right again: what is under way takes as much longer.
- ``log: true``, ``reset_counts: true``.

``/_disks`` is another way in, for whoever keeps the bytes of volumes: ``disk_changes.py``.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields
from typing import Any, Final

from provisioner.sandbox.strict_ec2 import faults, snapshots, throttle
from provisioner.sandbox.strict_ec2.world import (
    REAL_DELAYS,
    REAL_LATENCY_S,
    Delays,
    Settings,
    World,
)

_PLAIN: Final = (
    "capacity",
    "quotas",
    "iops_ceilings",
    "attach_limits",
    "instance_types",
    "outposts",
    "stuck_attaching",
    "stuck_detaching",
    "failing_creates",
    "failing_modifications",
    "failing_snapshots",
    "vanishing_creates",
    "copies_in_progress",
    "fast_restore_snapshots",
    "initialization_rate_limit_mibps",
    "snapshots_in_use",
    "modification_budget",
    "modification_window_s",
    "modification_refusal",
    "token_per_zone",
    "refused_keys",
    "accounts",
    "hang_max_s",
    "log",
)
_DELAYS: Final = frozenset(field.name for field in fields(Delays))


def set_latency(settings: Settings, spec: Any) -> None:
    """Set latency and delays: ``real``, ``none``, or ``[least_s, most_s]`` for the calls alone.

    Raises: ValueError for anything else.
    """
    match spec:
        case "real":
            settings.latency_s = REAL_LATENCY_S
            settings.delays = Delays(**REAL_DELAYS)
        case "none":
            settings.latency_s = (0.0, 0.0)
            settings.delays = Delays()
        case [least_s, most_s]:
            settings.latency_s = (float(least_s), float(most_s))
        case _:
            raise ValueError(f"latency must be real, none or [least_s, most_s], not {spec!r}")


def _set_delays(world: World, delays: dict[str, float]) -> None:
    unknown = delays.keys() - _DELAYS
    if unknown:
        raise ValueError(f"unknown delays: {', '.join(sorted(unknown))}")
    for name, seconds in delays.items():
        setattr(world.settings.delays, name, float(seconds))


def _set_faults(world: World, documents: list[dict[str, Any]] | None) -> None:
    """Add fault rules; null removes all."""
    if documents is None:
        world.settings.faults.clear()
    else:
        world.settings.faults.extend(faults.parse(documents))


def _advance(world: World, seconds: float | None) -> None:
    world.offset_s = 0.0 if seconds is None else world.offset_s + float(seconds)
    world.advance()
    world.disks.stir()


def _set_snapshot_limits(world: World, limits: dict[str, float]) -> None:
    unknown = limits.keys() - snapshots.LIMITS.keys()
    if unknown:
        raise ValueError(f"unknown snapshot limits: {', '.join(sorted(unknown))}")
    world.settings.snapshot_limits = {name: float(most) for name, most in limits.items()}


def _set_throttle(world: World, spec: object) -> None:
    world.settings.throttle = throttle.parse(spec)


_SETTERS: Final[dict[str, Callable[[World, Any], None]]] = {
    "latency": lambda world, spec: set_latency(world.settings, spec),
    "delays": _set_delays,
    "throttle": _set_throttle,
    "faults": _set_faults,
    "advance_s": _advance,
    "snapshot_limits": _set_snapshot_limits,
    "reset_counts": lambda world, wanted: world.reset_counts() if wanted else None,
}


def apply(world: World, document: dict[str, Any]) -> None:
    """Set what a document asks for, in its order; a reset is the front's business.

    Raises: ValueError, TypeError: an unknown key or value. Nothing silent: a test that misspells a
    fault would pass.
    """
    unknown = document.keys() - _SETTERS.keys() - set(_PLAIN) - {"reset"}
    if unknown:
        raise ValueError(f"unknown control keys: {', '.join(sorted(unknown))}")
    for key, value in document.items():
        if key in _SETTERS:
            _SETTERS[key](world, value)
        elif key in _PLAIN:
            setattr(world.settings, key, value)


def report(world: World, query: Mapping[str, str]) -> dict[str, Any]:
    """Describe what happened since the last reset (or ``reset_counts``), with the log if asked."""
    document: dict[str, Any] = {
        "started_at": world.started_at,
        "clock_s": world.now_s(),
        "calls": dict(world.calls),
        "throttled": dict(world.throttled),
        "errors": dict(world.errors),
        "faulted": dict(world.faulted),
        "faults_left": len(world.settings.faults),
    }
    if query.get("log") == "1":
        actions, text = query.get("action", ""), query.get("about", "")
        document["log"] = list(_calls(world, frozenset(filter(None, actions.split(","))), text))
    return document


def _calls(world: World, actions: AbstractSet[str], text: str) -> Iterator[dict[str, Any]]:
    for call in world.log:
        if actions and call["action"] not in actions:
            continue
        if not text or any(text in value for value in call["params"].values()):
            yield call
