"""No tight loop: how often one thing was asked for, of EC2 and of the API server."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from provisioner.kube.client import USER_AGENT
from provisioner.model.names import VOLUME_NAME
from tests.cluster.cluster import Cluster

WINDOW_S = 10.0
# One object, one verb. A story that goes well sends 1 to 3; retries come at 0.5, 1, 2, 4 s.
EC2_AT_MOST = 8
API_AT_MOST = 20
# The cadences that the product promises, for fewer than 500 volumes in transition.
DESCRIBES_AT_MOST = {
    # The watcher: three a second, and again without an id that EC2 does not know.
    "by id": 35,
    "by name": 25,  # look-ups: one each half second, and a page more
    "by other tags": 8,  # marks, left-over volumes: a minute apart, or a backoff
    # The watcher: one a second; and before a volume is modified, where those of 50 ms share a call.
    "modifications": 20,
    "snapshots": 15,  # the watcher
    "instances": 40,  # who attaches or detaches looks first; those of 50 ms share a call
}
_KINDS = {
    "DescribeInstances": "instances",
    "DescribeVolumesModifications": "modifications",
    "DescribeSnapshots": "snapshots",
}
LISTS_AT_MOST = 44  # live lists: four a second, while something is deleted; and the caches'


async def assert_calm(cluster: Cluster) -> None:
    """Hold all that was sent since the module began against the limits."""
    log = (await cluster._ask("/_control?log=1"))["log"]
    ours = [each for each in log if not _by_hand(each)]
    describes = [(e["at_s"], _look(e)) for e in ours if e["action"].startswith("Describe")]
    assert describes, "EC2 was never looked at: this proves nothing"
    changes = [
        (each["at_s"], (each["action"], _object_of(each["params"])))
        for each in ours
        if not each["action"].startswith("Describe")
    ]
    api = _asked_of_the_api_server(cluster)
    assert api, "the audit log is empty: this proves nothing"
    most = {kind: _busiest(e for e in describes if e[1] == kind) for kind in DESCRIBES_AT_MOST}
    most["one change in EC2"] = _busiest(changes)
    most["one list"] = _busiest(each for each in api if each[1][0] == "list")
    most["one request"] = _busiest(each for each in api if each[1][0] != "list")
    print(f"the most within {WINDOW_S:g} s: {most}")  # noqa: T201 -- shown when the test fails
    limits = DESCRIBES_AT_MOST | {
        "one change in EC2": EC2_AT_MOST,
        "one list": LISTS_AT_MOST,
        "one request": API_AT_MOST,
    }
    noisy = {kind: n for kind, n in most.items() if n > limits[kind]}
    assert noisy == {}, _told(api, cluster.began_at)


def _asked_of_the_api_server(cluster: Cluster) -> list[tuple[float, tuple[str, str]]]:
    """When, and what; a watch counts when it is opened, a list with each of its pages."""
    text = cluster.sandbox.plane.audit_log.read_text()
    # The last line may be half written still.
    records = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return [
        (_received_at(each), _target(each))
        for each in records
        # The log is that of the whole session; other modules run controllers of their own.
        if _received_at(each) >= cluster.began_at
        and not (each["verb"] == "watch" and each["stage"] == "ResponseComplete")
        and "leases" not in each["requestURI"]
        and "ebs-provisioner" in each["user"]["username"]
        # Tests use its token too, to see whether it is still good for something.
        and each["userAgent"] == USER_AGENT
    ]


def _told(requests: list[tuple[float, tuple[str, str]]], began_at: float) -> str:
    """When each thing was asked for, in seconds of the module, of those asked for often."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for at, what in sorted(requests):
        times[what].append(round(at - began_at, 1))
    often = {what: at for what, at in times.items() if len(at) > LISTS_AT_MOST // 2}
    return "\n".join(f"{' '.join(what)}: {at}" for what, at in often.items())


def _received_at(record: dict[str, Any]) -> float:
    return datetime.fromisoformat(record["requestReceivedTimestamp"]).timestamp()


def _look(call: dict[str, Any]) -> str:
    """What kind of Describe it is; one we do not know fails the look-up of its limit."""
    params = call["params"]
    if call["action"] in _KINDS:
        return _KINDS[call["action"]]
    assert call["action"] == "DescribeVolumes", call
    names = [value for key, value in params.items() if key.endswith(".Name")]
    if not names or "volume-id" in names:
        return "by id"
    return "by name" if f"tag:{VOLUME_NAME}" in names else "by other tags"


def _by_hand(call: dict[str, Any]) -> bool:
    """What the tests themselves have sent: ours has a token, and a page size with each filter."""
    params = call["params"]
    if call["action"] in {"DescribeVolumes", "DescribeVolumesModifications"}:
        return "MaxResults" not in params and not any(key.startswith("VolumeId") for key in params)
    return "ClientToken" not in params and call["action"] == "CreateVolume"


def _object_of(params: dict[str, str]) -> str:
    for key in ("ClientToken", "VolumeId", "ResourceId.1"):
        if key in params:
            return params[key]
    return ""


def _target(record: dict[str, Any]) -> tuple[str, str]:
    return record["verb"], record["requestURI"].partition("?")[0]


def _busiest(requests: Iterable[tuple[float, object]]) -> int:
    """The most requests for one thing within any ``WINDOW_S``."""
    times: dict[object, list[float]] = defaultdict(list)
    for at, what in requests:
        times[what].append(at)
    most = 0
    for each in times.values():
        each.sort()
        start = 0
        for end, at in enumerate(each):
            while at - each[start] > WINDOW_S:
                start += 1
            most = max(most, end - start + 1)
    return most
