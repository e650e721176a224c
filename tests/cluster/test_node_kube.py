"""The node's own client and what it learns by it, on a real API server, by the node's account."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.model.attachment import attachment_name
from provisioner.model.errors import KubeError, Reason
from provisioner.model.names import FORMAT_CONSENT
from provisioner.node.formatting.format import Consents
from provisioner.node.formatting.rules import Consent
from provisioner.node.instance.attachments import AttachmentLookups
from provisioner.node.instance.info import ForeignVolumes, Info
from provisioner.node.instance.kube import ApiServer, NodeKube
from provisioner.node.instance.metadata import Metadata
from provisioner.node.instance.volume_limit_rules import LimitOptions
from provisioner.node.runtime.sysfs import SystemDirs
from provisioner.sandbox import credentials
from provisioner.sandbox.api import Api
from provisioner.sandbox.installation import install_node
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.cluster import ATTACHMENTS, PVS

DRIVER = "node-kube.example.com"  # no controller is responsible for it

Json = dict[str, Any]


@pytest.fixture
async def server(background: Background, sandbox: Sandbox, tmp_path: Path) -> ApiServer:
    plane = sandbox.plane
    account = await background.call(install_node(plane))
    token = await background.call(plane.service_account_token(account.namespace, account.name))
    (tmp_path / "token").write_text(token)
    return ApiServer(plane.server, tmp_path / "token", plane.credentials.authority)


@pytest.fixture
async def kube(server: ApiServer, sandbox: Sandbox) -> AsyncIterator[NodeKube]:
    async with NodeKube(server, sandbox.instances[0].private_dns_name, driver=DRIVER) as client:
        yield client


class Volume:
    """A persistent volume that is attached to a node."""

    def __init__(self, api: Api, node: str) -> None:
        self.api = api
        self.id = f"vol-{uuid.uuid4().hex[:17]}"
        self.name = f"pv-{self.id}"
        self.node = node
        self.attachment = attachment_name(self.id, DRIVER, node)

    async def create(self) -> None:
        spec: Json = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": DRIVER, "volumeHandle": self.id},
            "claimRef": {"namespace": "shop", "name": "data"},
            "persistentVolumeReclaimPolicy": "Retain",
        }
        await self.api.create(PVS, {"metadata": {"name": self.name}, "spec": spec})
        await self.attach()

    async def attach(self) -> None:
        source = {"persistentVolumeName": self.name}
        spec = {"attacher": DRIVER, "nodeName": self.node, "source": source}
        await self.api.create(ATTACHMENTS, {"metadata": {"name": self.attachment}, "spec": spec})

    async def detach(self) -> None:
        await self.api.delete(f"{ATTACHMENTS}/{self.attachment}")


@pytest.fixture
async def volume(api: Api, kube: NodeKube) -> AsyncIterator[Volume]:
    made = Volume(api, kube.node_name)
    await made.create()
    yield made
    await made.detach()
    await api.delete(f"{PVS}/{made.name}")


async def test_a_node_is_read(kube: NodeKube, sandbox: Sandbox):
    node = await kube.node()

    assert node.instance_id == sandbox.instances[0].instance_id
    assert node.labels["topology.kubernetes.io/zone"] == sandbox.instances[0].zone


async def test_from_a_volume_to_its_claim(kube: NodeKube, volume: Volume):
    attachment = await kube.attachment(volume.id)
    assert attachment is not None
    found = await kube.persistent_volume(attachment.persistent_volume)

    assert found is not None
    assert found.spec.claim_ref is not None
    assert (found.spec.claim_ref.namespace, found.spec.claim_ref.name) == ("shop", "data")


async def test_what_is_not_there_is_none(kube: NodeKube):
    assert await kube.attachment("vol-0") is None
    assert await kube.persistent_volume("pv-of-nobody") is None


async def test_a_node_that_is_not_there_is_told(server: ApiServer):
    async with NodeKube(server, "nobody") as kube:
        with pytest.raises(KubeError, match='nodes "nobody" not found') as caught:
            await kube.node()

    assert caught.value.reason is Reason.OBJECT_NOT_FOUND


async def test_a_token_is_renewed_and_a_wrong_one_told(kube: NodeKube, server: ApiServer):
    token = server.token_file.read_text()
    await kube.node()

    server.token_file.write_text("no token of ours")
    with pytest.raises(KubeError) as caught:
        await kube.node()
    assert caught.value.reason is Reason.UNAUTHORIZED

    server.token_file.write_text(token)
    await kube.node()


async def test_a_server_with_another_authority_is_not_believed(server: ApiServer, tmp_path: Path):
    other = tmp_path / "other.crt"
    stranger = credentials.create(tmp_path / "stranger")
    other.write_bytes(stranger.authority.read_bytes())

    async with NodeKube(replace(server, ca_file=other), "nobody") as kube:
        with pytest.raises(KubeError, match="certificate verify failed") as caught:
            await kube.node()

        # A renewed authority is read again with the next connection.
        assert server.ca_file is not None
        other.write_bytes(server.ca_file.read_bytes())
        with pytest.raises(KubeError, match='nodes "nobody" not found'):
            await kube.node()
    assert caught.value.reason is Reason.UNREACHABLE


async def test_consent_is_read_from_the_persistent_volume(kube: NodeKube, volume: Volume, api: Api):
    consents = Consents(kube)
    assert await consents.of(volume.id) == Consent(volume.name, None)

    annotations = {"metadata": {"annotations": {FORMAT_CONSENT: "yes"}}}
    await api.patch(f"{PVS}/{volume.name}", annotations)
    assert await consents.of(volume.id) == Consent(volume.name, "yes")


async def test_kubelet_is_told_of_a_node_without_a_metadata_service(
    kube: NodeKube, volume: Volume, sandbox: Sandbox, tmp_path: Path
):
    metadata = Metadata(None, kube, SystemDirs(sys=tmp_path))

    async def seen() -> frozenset[str]:
        return frozenset({"vol-root", "vol-foreign", volume.id})

    foreign = ForeignVolumes(kube, AttachmentLookups(kube), metadata, seen)

    found = await Info(kube, metadata, foreign, LimitOptions()).get()

    assert found.node_id == sandbox.instances[0].instance_id
    assert found.segments["topology.ebs.csi.aws.com/zone"] == sandbox.instances[0].zone
    assert found.max_volumes == 25  # m5.large: 27, less the two that are not ours
