"""The API server, EC2 or the credentials go away for a while, with work in flight.

The controller runs without leader election: with it, a leader that cannot renew its lease ends
itself (``test_leases``), and this is about a process that lives through it all.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from provisioner.sandbox import control_plane
from provisioner.sandbox.api import Api, ApiError
from tests.cluster import calm
from tests.cluster.background import Background
from tests.cluster.cluster import ATTACHMENTS, Cluster, Json, handle_of, opened, token_of
from tests.cluster.place import Place, a_place

pytestmark = pytest.mark.asyncio(loop_scope="module")

API_OUTAGE_S = 20.0
"""Long enough for every request under way to fail and every backoff to grow; what a minute or ten
does to each flow is shown in virtual time (``tests/controller/provisioning/test_api_outage.py``)."""

AFTERWARDS_S = 120.0
"""The backoff has grown to some 16 s, and a new API server answers 403 to everybody at first."""

NAMESPACE, ACCOUNT = "ebs-provisioner", "ebs-provisioner-controller"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    async with opened(background, "--no-leader-elect") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def place(cluster: Cluster) -> AsyncIterator[Place]:
    async with a_place(cluster) as made:
        yield made


class Wire:
    """Between the controller and EC2: can be cut, and mended at the same address."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("http://").rpartition(":")
        self._there = host, int(port)
        self._port = control_plane.free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._there)
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            self._writers -= {writer, back}

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


async def restart_controller_manager(cluster: Cluster) -> None:
    """Its own backoff of up to half a minute, before it binds anything, is not what is tested."""
    crew, name = cluster.sandbox.crew, "kube-controller-manager"
    command = command_of(crew.parts[name].process.pid)
    await cluster.background.call(crew.stop(name))
    await cluster.background.call(crew.start(name, command))


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]


async def test_claims_and_attachments_outlive_an_api_server_that_goes_away(
    cluster: Cluster, place: Place
):
    bound = await place.a_volume("before")
    claim = await place.waiting_claim()
    late = await place.waiting_claim("late")
    held: Json = {"do": "delay", "delay_s": API_OUTAGE_S / 2}
    for each in (claim, late):
        await cluster.fault("CreateVolume", match={"ClientToken": token_of(each)}, **held)
        await place.choose_node(each)
        await place.is_requested(token_of(each))
    await cluster.fault("AttachVolume", match={"VolumeId": handle_of(bound)}, **held)
    attachment = await place.attachment(bound["metadata"]["name"])
    await place.is_requested(handle_of(bound), "AttachVolume")
    lines = len(cluster.log())

    await cluster.background.call(cluster.sandbox.plane.stop_api_server())
    await asyncio.sleep(API_OUTAGE_S)
    said = len(cluster.log()) - lines
    await cluster.background.call(cluster.sandbox.plane.start_api_server())
    await restart_controller_manager(cluster)

    assert cluster.said("cannot watch a kind")
    assert said < 60, "a line for each try of each thing, not a flood"
    for name in ("data", "late"):
        await place.bound(name, AFTERWARDS_S)
    await place.attached(attachment, AFTERWARDS_S)
    assert len(await place.volumes()) == 3
    await place.remove(f"{ATTACHMENTS}/{attachment}")


async def test_new_work_is_done_after_an_api_server_was_away(cluster: Cluster, place: Place):
    pv = await place.a_volume()

    attachment = await place.attachment(pv["metadata"]["name"])

    await place.attached(attachment)


async def is_refused(cluster: Cluster) -> bool:
    """The API server believes in a token for some seconds longer."""
    plane, path = cluster.sandbox.plane, cluster.sandbox.controller_kubeconfig
    assert path is not None
    token = yaml.safe_load(path.read_text())["users"][0]["user"]["token"]
    async with Api(plane.server, plane.credentials.authority, token) as client:
        try:
            await client.get("/api/v1/persistentvolumes")
        except ApiError as error:
            return error.status == 401
    return False


async def test_an_account_made_anew_makes_the_token_worthless_until_a_new_one_is_there(
    cluster: Cluster, place: Place
):
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}"
    account = await cluster.api.get(path)
    await cluster.api.delete(path)
    kept = {key: account["metadata"][key] for key in ("name", "namespace")}
    await cluster.api.create(path.rpartition("/")[0], {"metadata": kept})
    await cluster.until("the token is refused", lambda: is_refused(cluster))
    await place.claim(await place.storage_class())

    async def noticed() -> bool:
        return bool(cluster.said("rejects our credentials"))

    await cluster.until("the worthless token is told", noticed)
    plane, kubeconfig = cluster.sandbox.plane, cluster.sandbox.controller_kubeconfig
    token = await cluster.background.call(plane.service_account_token(NAMESPACE, ACCOUNT))
    plane.kubeconfig_for(token, kubeconfig)

    await place.bound()
    assert cluster.said("accepts our credentials again")


async def test_an_ec2_that_answers_html_is_told_and_asked_calmly_until_it_is_well(
    cluster: Cluster, place: Place
):
    claim = await place.waiting_claim()
    began_s = time.monotonic()
    await cluster.fault("*", "html", n=1000)
    await place.choose_node(claim)

    async def told() -> bool:
        return bool(cluster.said("CreateVolume", "EC2 answered 500", "will try again"))

    try:
        await cluster.until("the odd answer is told", told)
        await place.is_requested(token_of(claim), times=4)
        assert time.monotonic() - began_s > 3, "the tries come too fast"
    finally:
        await cluster.control(faults=None)

    await place.bound()
    assert len(await place.volumes()) == 1


async def test_aws_credentials_that_expire_are_told_and_work_goes_on_once_they_are_new(
    cluster: Cluster, place: Place
):
    pv = await place.a_volume("before")
    expired: Json = {
        "code": "ExpiredToken",
        "message": "The security token included in the request is expired",
        "http_status": 400,
    }
    for action in ("CreateVolume", "AttachVolume", "DescribeInstances"):
        await cluster.fault(action, n=1000, **expired)
    try:
        await place.claim(f"{place.name}-class")
        attachment = await place.attachment(pv["metadata"]["name"])

        await place.told("CreateVolume", "ExpiredToken", "AWS credentials")
        await place.attach_error(attachment, "ExpiredToken", "AWS credentials")
    finally:
        await cluster.control(faults=None)

    await place.bound(timeout_s=AFTERWARDS_S)
    await place.attached(attachment, AFTERWARDS_S)
    assert len(await place.volumes()) == 2
    await place.remove(f"{ATTACHMENTS}/{attachment}")


async def test_an_ec2_that_cannot_be_reached_is_told_and_everything_goes_on_afterwards(
    cluster: Cluster, place: Place
):
    wire = Wire(cluster.sandbox.ec2_endpoint)
    await wire.mend()
    await cluster.stop(grace_s=10)
    there, cluster.sandbox.ec2_endpoint = cluster.sandbox.ec2_endpoint, wire.endpoint
    try:
        await cluster.start("--no-leader-elect")
    finally:
        cluster.sandbox.ec2_endpoint = there
    pv = await place.a_volume("before")
    await wire.cut()
    await place.claim(f"{place.name}-class")
    attachment = await place.attachment(pv["metadata"]["name"])

    await place.told("CreateVolume", "could not be reached")
    await place.attach_error(attachment, "could not be reached")

    await wire.mend()
    await place.bound()
    await place.attached(attachment)
    await place.remove(f"{ATTACHMENTS}/{attachment}")
    for name in ("before", "data"):
        await place.remove(f"{place.claims}/{name}")
    await cluster.until("all is gone", place.is_empty)
    await cluster.stop(grace_s=10)
    await wire.cut()
    await cluster.start("--no-leader-elect")


async def test_nothing_of_this_was_a_tight_loop(cluster: Cluster):
    await calm.assert_calm(cluster)
