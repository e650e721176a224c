"""How calls end: codes, sentences, deadlines and log lines; over a real unix socket."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from provisioner.model.errors import NodeError, Reason, StorageError
from provisioner.node.csi.wire import csi_pb2
from provisioner.node.metrics.counters import NodeMetrics
from tests.node.caller import Caller, calling
from tests.node.served import ID, MOUNT, STAGING, TARGET, UNSTAGE, Parts, served

pytest_plugins = ("tests.node.served_fixtures",)


async def test_every_call_reaches_its_part_and_is_answered(call: Caller, parts: Parts):
    both: dict[str, Any] = {"volume_capability": MOUNT, "staging_target_path": STAGING}
    info = await call("NodeGetInfo")
    await call("NodeStageVolume", volume_id=ID, **both)
    await call("NodePublishVolume", volume_id=ID, target_path=TARGET, **both)
    grown = await call("NodeExpandVolume", volume_id=ID, volume_path=TARGET)
    stats = await call("NodeGetVolumeStats", volume_id=ID, volume_path=TARGET)
    await call("NodeUnpublishVolume", volume_id=ID, target_path=TARGET)
    await call("NodeUnstageVolume", **UNSTAGE)

    assert (info.node_id, info.max_volumes_per_node) == ("i-1", 25)
    assert dict(info.accessible_topology.segments) == {"topology.kubernetes.io/zone": "eu-west-1a"}
    assert grown.capacity_bytes == 7
    size, inodes = stats.usage
    assert (size.unit, size.total, size.used, size.available) == (1, 10, 6, 3)
    assert (inodes.unit, inodes.total, inodes.used, inodes.available) == (2, 100, 40, 60)
    assert [type(each).__name__ for each in parts.calls] == [
        *("str", "Stage", "Publish", "Expand", "Stats", "Unpublish", "Unstage")
    ]


async def test_of_a_raw_device_the_size_alone_is_told(call: Caller):
    path = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv/1-2"
    (size,) = (await call("NodeGetVolumeStats", volume_id=ID, volume_path=path)).usage

    assert (size.unit, size.total, size.used, size.available) == (1, 4096, 0, 0)


async def test_what_is_served_is_declared(call: Caller):
    reply = await call("NodeGetCapabilities")

    kinds = {csi_pb2.NodeServiceCapability.RPC.Type.Name(c.rpc.type) for c in reply.capabilities}
    assert kinds == {"STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME", "GET_VOLUME_STATS"}


async def test_a_failure_is_told_with_its_code_its_reason_and_in_its_words(
    call: Caller, parts: Parts, metrics: NodeMetrics
):
    async def fails() -> None:
        raise NodeError(Reason.TARGET_BUSY, "é is busy\nsince noon")

    parts.does = fails
    with capture_logs() as lines:
        told = await call.failing("NodeUnstageVolume", **UNSTAGE)

    sentence = "TargetBusy: é is busy\nsince noon"
    assert told == (grpc.StatusCode.FAILED_PRECONDITION, sentence)
    (line,) = [line for line in lines if line["event"] == "not answered"]
    assert (line["volume"], line["reason"]) == (ID, "TargetBusy")
    labels = {"method": "NodeUnstageVolume", "code": "FAILED_PRECONDITION"}
    name = "ebs_provisioner_node_rpcs_total"
    assert metrics.registry.get_sample_value(name, labels) == 1.0


async def test_bytes_that_are_no_message_are_refused(call: Caller, parts: Parts):
    raw: Any = call._channel.unary_unary("/csi.v1.Node/NodeUnstageVolume")
    with pytest.raises(grpc.aio.AioRpcError):
        await raw(b"\xff\xff\xff", timeout=10)

    assert parts.calls == []
    await call("NodeUnstageVolume", **UNSTAGE)


async def test_an_unexpected_error_is_internal_and_in_the_log(call: Caller, parts: Parts):
    async def breaks() -> None:
        raise KeyError("mount")

    parts.does = breaks
    with capture_logs() as lines:
        code, sentence = await call.failing("NodeUnstageVolume", **UNSTAGE)

    assert code is grpc.StatusCode.INTERNAL
    assert "KeyError('mount')" in sentence
    assert [line["event"] for line in lines] == ["unexpected error", "not answered"]
    assert lines[0]["exc_info"]


async def test_a_very_long_message_still_arrives(call: Caller, parts: Parts):
    async def fails() -> None:
        raise StorageError(Reason.MOUNT_FAILED, "é" * 100_000)

    parts.does = fails
    code, sentence = await call.failing("NodeUnstageVolume", **UNSTAGE)

    assert code is grpc.StatusCode.INTERNAL
    assert sentence.startswith("MountFailed: ééé")


async def test_a_deadline_cancels_the_work(call: Caller, parts: Parts):
    cancelled = asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    parts.does = hangs
    code, _ = await call.failing(
        "NodeStageVolume", timeout_s=0.3, volume_capability=MOUNT, **UNSTAGE
    )

    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(cancelled.wait(), 10)
    assert parts.time_left_s is not None
    # gRPC rounds it up to a whole ms on its way.
    assert 0 < parts.time_left_s <= 0.31


async def test_a_caller_that_leaves_cancels_the_work(call: Caller, parts: Parts):
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def hangs() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    parts.does = hangs
    asking = asyncio.ensure_future(call("NodeUnstageVolume", **UNSTAGE))
    await asyncio.wait_for(running.wait(), 10)
    asking.cancel()

    await asyncio.wait_for(cancelled.wait(), 10)


async def test_secrets_are_neither_read_nor_logged(call: Caller, parts: Parts):
    # {volume_id, secrets: {"k": "hunter2"}, and no path}: as a peer with the whole of CSI sends it.
    request = csi_pb2.NodeStageVolumeRequest(volume_id=ID).SerializeToString()
    secret = b"\x2a\x0c\x0a\x01k\x12\x07hunter2"
    raw: Any = call._channel.unary_unary("/csi.v1.Node/NodeStageVolume")
    with capture_logs() as lines, pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw(request + secret, timeout=10)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert lines
    assert "hunter2" not in f"{lines}{caught.value}"


async def test_calls_under_way_are_given_time_at_the_end(tmp_path: Path, parts: Parts):
    running, go_on = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        running.set()
        await go_on.wait()

    parts.does = waits
    path = tmp_path / "csi.sock"
    async with served(path, parts, NodeMetrics()) as endpoint, calling(path) as call:
        asking = asyncio.ensure_future(call("NodeUnstageVolume", **UNSTAGE))
        await asyncio.wait_for(running.wait(), 10)
        closing = asyncio.ensure_future(endpoint.close(10.0))
        await asyncio.sleep(0)  # it has begun
        assert not path.exists()
        go_on.set()

        await asyncio.wait_for(asking, 10)
        await asyncio.wait_for(closing, 10)
