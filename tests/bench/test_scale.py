"""The large cluster of the bench: what stands in etcd and in EC2 is what the product reads."""

import base64
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock
from urllib.parse import parse_qsl

import pytest
from aiohttp import ClientConnectionError, ClientSession, web
from aiohttp.test_utils import RawTestServer

from provisioner.ec2 import wire as ec2_wire
from provisioner.kube import wire
from provisioner.kube.resources import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Resource,
)
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.names import CLUSTER_NAME, UNCLAIMED
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.errors import SandboxError
from tests.bench import (
    api_traffic,
    etcd,
    phases,
    processes,
    scale,
    scale_burst,
    scale_report,
    scale_stage,
    standing,
    standing_ec2,
    webhook_measure,
    world,
)
from tests.bench.api_traffic import counted
from tests.bench.go_profile import Profile
from tests.bench.measured_controller import Pass
from tests.bench.phases import Phase
from tests.bench.scale_burst import Bursts
from tests.bench.scale_stage import Scaled, Stage
from tests.bench.standing import Standing
from tests.bench.standing_ec2 import StandingEc2

THERE = Standing(volumes=30, nodes=3, attachments=18)
_KINDS: Mapping[str, Resource[Any]] = {
    "persistentvolumeclaims": CLAIMS,
    "persistentvolumes": PERSISTENT_VOLUMES,
    "volumeattachments": ATTACHMENTS,
    "minions": NODES,
    "csinodes": CSI_NODES,
    "storageclasses": STORAGE_CLASSES,
}


def test_what_stands_in_etcd_can_be_read_and_belongs_together() -> None:
    found: dict[str, list[Any]] = {}
    for key, body in THERE.stored():
        kind = key.split("/")[2]
        if kind in _KINDS:
            read = wire.decode_object(_KINDS[kind], json.dumps(body).encode())
            assert key == f"/registry/{kind}/{read.key}"
            assert "resourceVersion" not in body["metadata"], "etcd's own revision is the version"
            found.setdefault(kind, []).append(read)

    claims, volumes = found["persistentvolumeclaims"], found["persistentvolumes"]
    assert [len(claims), len(volumes), len(found["volumeattachments"])] == [30, 30, 18]
    for claim, volume in zip(claims, volumes, strict=True):
        assert claim.spec.volume_name == volume.name
        assert volume.spec.claim_ref.uid == claim.uid
    names = {volume.name for volume in volumes}
    nodes = {node.name for node in found["minions"]}
    for each in found["volumeattachments"]:
        assert each.spec.source.persistent_volume_name in names
        assert each.spec.node_name in nodes


def test_each_object_is_put_once_and_no_transaction_is_longer_than_etcd_allows() -> None:
    stored = [(f"/registry/x/{n}", {"n": n}) for n in range(250)]

    bodies = [json.loads(body)["success"] for body in etcd.transactions(stored)]

    assert max(map(len, bodies)) <= 128
    puts = [each["requestPut"] for body in bodies for each in body]
    read = [(base64.b64decode(p["key"]), json.loads(base64.b64decode(p["value"]))) for p in puts]
    assert read == [(key.encode(), body) for key, body in stored]


def test_an_inventory_shows_the_volumes_that_the_cluster_names() -> None:
    volumes = [THERE.volume(n, "bench") for n in range(30)]

    answer = ec2_wire.read(standing_ec2.page(volumes, "standing-30").encode())

    assert answer["NextToken"] == "standing-30"
    for sent, read in zip(volumes, answer["Volumes"], strict=True):
        assert (read.volume_id, read.state, read.tags) == (sent.volume_id, sent.state, sent.tags)
        assert read.tags[CLUSTER_NAME] == "bench"
        assert UNCLAIMED not in read.tags
    bodies = [body for key, body in THERE.stored() if "/persistentvolumes/" in key]
    handles = [body["spec"]["csi"] for body in bodies]
    assert [each["volumeHandle"] for each in handles] == [v.volume_id for v in volumes]
    assert {each["driver"] for each in handles} == {EBS_DRIVER}


def test_only_an_inventory_is_answered_with_standing_volumes() -> None:
    of_cluster = {"Action": "DescribeVolumes", "Filter.1.Name": "tag:kubernetes.io/cluster/bench"}

    assert standing_ec2.is_inventory(of_cluster)
    assert not standing_ec2.is_inventory({**of_cluster, "Filter.2.Name": "tag-key"})
    assert not standing_ec2.is_inventory({**of_cluster, "Action": "DescribeSnapshots"})
    by_name = {"Action": "DescribeVolumes", "Filter.1.Name": "tag:CSIVolumeName"}
    assert not standing_ec2.is_inventory(by_name)
    assert not standing_ec2.is_inventory({"Action": "DescribeVolumes", "VolumeId.1": "vol-1"})


async def test_an_inventory_goes_on_with_the_pages_of_the_account_behind_it() -> None:
    asked: list[dict[str, str]] = []

    async def behind(request: web.BaseRequest) -> web.Response:
        asked.append(dict(parse_qsl((await request.read()).decode())))
        return web.Response(text="<volumeSet></volumeSet><nextToken>3f9c</nextToken>")

    of_cluster = {"Action": "DescribeVolumes", "Filter.1.Name": "tag:kubernetes.io/cluster/bench"}
    async with RawTestServer(behind) as account, ClientSession() as session:
        in_front = StandingEc2(Standing.of(0), "bench", str(account.make_url("")).rstrip("/"))
        async with in_front.serving() as endpoint:
            for more in ({}, {"NextToken": "standing-0"}, {"NextToken": "3f9c"}):
                async with session.post(endpoint, data={**of_cluster, **more}) as reply:
                    assert reply.status == 200

    assert asked == [of_cluster, of_cluster, {**of_cluster, "NextToken": "3f9c"}]


async def test_the_burst_in_an_empty_cluster_has_the_same_proxy_in_front_of_ec2(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    class Crowd:
        phases: Sequence[Phase] = ()
        stand = AsyncMock()

        def __init__(self, made: Mock, *_: object) -> None:
            self.endpoint = made.ec2.endpoint

        async def start(self) -> None:
            seen.append(self.endpoint)

        burst = start

    @asynccontextmanager
    async def empty(*_: object, **__: object) -> AsyncIterator[Mock]:
        yield Mock(**{"ec2.endpoint": "http://strict"})

    monkeypatch.setattr(scale, "world", empty)
    monkeypatch.setattr(scale, "_Crowd", Crowd)
    monkeypatch.setattr(phases, "make_class", AsyncMock())

    await scale._in_empty_cluster(Path(), Path(), Mock())

    assert len(seen) == 2
    assert all(each.startswith("http://127.0.0.1:") for each in seen)


async def test_an_api_server_that_needs_more_than_the_sandbox_has_patience_for_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(world, "_READY_LOOK_S", 0.0)
    plane = Mock(**{"crew.parts": {"kube-apiserver": Mock()}})
    plane.start_api_server = AsyncMock(side_effect=[SandboxError("took more than 60 s")])
    plane.api.get = AsyncMock(side_effect=[ClientConnectionError, ApiError(500, ""), "ok"])

    await world.start_api_server(plane)

    plane.start_api_server.assert_awaited_once()
    assert plane.api.get.await_count == 3


async def test_an_api_server_that_ends_while_it_is_waited_for_ends_the_run() -> None:
    plane = Mock(**{"crew.parts": {"kube-apiserver": Mock()}})
    plane.start_api_server = AsyncMock(side_effect=[SandboxError("kube-apiserver ended")])
    plane.api.get = AsyncMock(side_effect=ClientConnectionError)
    plane.crew.check.side_effect = SandboxError("kube-apiserver ended")

    with pytest.raises(SandboxError):
        await world.start_api_server(plane)


def test_what_is_asked_for_by_ids_alone_is_named_once() -> None:
    by_id = {
        "Action": "DescribeVolumes",
        "Filter.1.Name": "volume-id",
        "Filter.1.Value.1": standing.volume_id(7),
        "Filter.1.Value.2": "vol-0d4c1f2a3b4c5d6e7",
    }

    asked = standing_ec2.ids_asked(by_id)

    assert [standing.number_of(each) == 7 for each in asked] == [True, False]
    assert standing.number_of("vol-") is None
    assert standing_ec2.ids_asked({**by_id, "NextToken": "2"}) == []
    assert standing_ec2.ids_asked({**by_id, "Filter.2.Name": "status"}) == []


def test_requests_are_counted_once_within_their_time() -> None:
    def event(name: str, at: str, stage: str) -> bytes:
        return json.dumps(
            {
                "auditID": name,
                "stage": stage,
                "verb": "watch",
                "requestReceivedTimestamp": f"2026-11-24T03:00:{at}.000000Z",
                "objectRef": {"resource": "nodes"},
            }
        ).encode()

    lines = [
        event("early", "09", "ResponseComplete"),
        event("one", "10", "ResponseStarted"),
        event("one", "10", "ResponseComplete"),
        event("two", "59", "ResponseStarted"),
    ]
    from_s = 1795489210.0

    assert counted(b"\n".join(lines), from_s, from_s + 60) == Counter({"watch nodes": 2})
    assert counted(b"\n".join(lines), from_s, from_s + 10) == Counter({"watch nodes": 1})


def test_the_report_names_the_longest_passes_and_what_was_asked() -> None:
    noted = [Pass(at_s, ms, f"at {at_s:.0f}", ms) for at_s, ms in enumerate((231.0, 28, 21, 31))]
    slow = Stage("start", 0.0, 12.5, {"leading": 11.0}, longest=scale_stage.longest(noted))
    quiet = Stage("a quiet minute", 0.0, 60.0, requests=Counter({"get leases": 24}))
    quiet.received_mib = 3.25

    text = scale_report.markdown(Scaled(THERE, 4.0, [slow, quiet], (1.0, 2.0)))

    [row] = [line for line in text.splitlines() if line.startswith("| start |")]
    assert row.startswith("| start | 12.5 | leading 11.0 |")
    assert row.endswith("| 231, 31, 28 |")
    told = scale_report.told(slow)
    assert told.endswith(
        ", pass of 231 ms, 0 garbage (at 0), pass of 31 ms, 0 garbage (at 3)"
        ", pass of 28 ms, 0 garbage (at 1)"
    )
    assert "a quiet minute: requests to the API server: get leases 24, 3.2 MiB received." in text


def test_the_report_says_whether_and_how_often_the_controller_ended_in_a_stage() -> None:
    away = Stage("restart", 0.0, 65.5, {"it is ready": 19.0}, ended=1)
    short = Stage("short restart", 0.0, 11.5, {"it is ready": 3.6}, ended=0)

    text = scale_report.markdown(Scaled(THERE, 4.0, [away, short], (1.0, 2.0)))

    ended = "times that the controller ended"
    assert f"| restart | 65.5 | it is ready 19.0, {ended} 1 |" in text
    assert f"| short restart | 11.5 | it is ready 3.6, {ended} 0 |" in text


def test_the_report_says_where_a_burst_takes_longer_than_in_an_empty_cluster() -> None:
    bursts = Bursts(
        [Phase("bound", 1000, seconds=26.0), Phase("gone", 1000, seconds=27.0)],
        [Phase("bound", 1000, seconds=20.0), Phase("gone", 1000, seconds=20.0)],
    )

    text = scale_report.markdown(Scaled(THERE, 4.0, [], (1.0, 2.0), bursts=bursts))

    assert "| bound | 26.0 | 0.0 | 20.0 | 0.0 | 1.30 | 1.3 |" in text
    assert "| gone | 27.0 | 0.0 | 20.0 | 0.0 | 1.35, **missed** | 1.3 |" in text


def test_the_report_says_who_spends_the_cpu_of_a_burst_and_when_half_of_it_is_there() -> None:
    manager = {"kube-apiserver": 9.0, "etcd": 4.0, "kube-controller-manager": 12.0}
    cpu_s = {**manager, "EC2": 3.0, "contestant": 6.0, "bench": 2.0}
    all_s = dict.fromkeys(cpu_s, 99.0)  # after the last object too, so not comparable with seconds
    bursts = Bursts(
        [Phase("bound", 1000, seconds=26.0, median_s=14.0, cpu_s=all_s, cpu_within_s=cpu_s)],
        [Phase("bound", 1000, seconds=20.0, median_s=10.0, cpu_within_s={**cpu_s, "etcd": 3.0})],
    )

    text = scale_report.markdown(Scaled(THERE, 4.0, [], (1.0, 2.0), bursts=bursts))

    assert "| bound | 26.0 | 14.0 | 20.0 | 10.0 | 1.30 | 1.3 |" in text
    parts = "kube-apiserver | etcd | kube-controller-manager | EC2 | ours | the bench"
    assert (
        f"| CPU within these seconds, s | cluster | {parts} |\n|---|---|--:|--:|--:|--:|--:|--:|"
        in text
    )
    assert "| bound | this one | 9.0 | 4.0 | 12.0 | 3.0 | 6.0 | 2.0 |" in text
    assert "| bound | an empty one | 9.0 | 3.0 | 12.0 | 3.0 | 6.0 | 2.0 |" in text
    assert scale_burst.told(bursts.large[0]) == (
        "bound 26.0 s, median 14.0; CPU s: kube-apiserver 9.0, etcd 4.0, "
        "kube-controller-manager 12.0, EC2 3.0, ours 6.0, the bench 2.0"
    )


def test_the_report_says_how_much_of_the_controller_manager_is_the_binding() -> None:
    binder = "k8s.io/kubernetes/pkg/controller/volume/persistentvolume."
    comparing = frozenset(
        {binder + "(*PersistentVolumeController).claimWorker", "volume.FindMatchingVolume"}
    )
    large = Profile([(comparing, 90), (frozenset({"runtime.gcBgMarkWorker"}), 10)])
    phases_ = [Phase("bound", 1000, seconds=26.0)]

    text = scale_burst.markdown(Bursts(phases_, phases_, (large, Profile())))

    assert "the PV controller is on the stack in 90% of 100 samples" in text
    assert "with every PersistentVolume in 90%; in the empty cluster" in text


def test_the_claims_of_one_team_are_those_that_stand() -> None:
    large = Standing(volumes=1_000, nodes=3, attachments=0)
    bodies = [body for key, body in large.stored() if "/persistentvolumeclaims/" in key]
    names = [
        each["metadata"]["name"]
        for each in bodies
        if each["metadata"]["namespace"] == standing.TEAM
    ]

    assert names == [standing.of_one_team(turn) for turn in range(large.claims_of_one_team)]


def test_what_came_over_a_connection_that_has_ended_takes_nothing_from_the_others() -> None:
    line = 'ESTAB 0 0 127.0.0.1:{} 127.0.0.1:6443 users:(("python",pid=7)) bytes_received:{} x'
    before, now = (
        api_traffic.received_by(line.format(*each) for each in ends)
        for ends in (((1, 500), (2, 9000), (3, 800)), ((1, 700), (3, 20), (4, 30)))
    )

    assert before == {"127.0.0.1:1": 500, "127.0.0.1:2": 9000, "127.0.0.1:3": 800}
    assert api_traffic.came_since(before, now) == 200 + 20 + 30


async def test_the_memory_of_a_webhook_at_most_is_that_since_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = SimpleNamespace(process=SimpleNamespace(pid=os.getpid()))
    parts = {"kube-apiserver": part, "kube-controller-manager": part}
    crew = SimpleNamespace(parts=parts)
    plane = SimpleNamespace(folder=tmp_path, api_port=1, crew=crew)
    made = SimpleNamespace(
        plane=plane, pid=os.getpid(), contestant=None, ec2=SimpleNamespace(endpoint="")
    )

    told: list[str] = []
    crowd = scale._Crowd(cast("Any", made), THERE, told.append)
    crowd._reviews = cast("Any", None)

    @asynccontextmanager
    async def serving(*_: Any, **__: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(ready_s=1.0)

    monkeypatch.setattr(scale, "serving", serving)
    monkeypatch.setattr(scale, "held_still", lambda _: nullcontext())
    monkeypatch.setattr(webhook_measure, "answered_by", AsyncMock(return_value=[]))
    monkeypatch.setattr(processes, "forget_peak", lambda _: told.append("forgotten"))

    await crowd._serve_webhook()

    first, forgotten, second = told
    assert first.startswith("a webhook replica, all cached")
    assert forgotten == "forgotten"
    assert second.startswith("the same replica")
