"""The attacher with services that answer at once: what wakes it, what it tells, what it keeps."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec import structs

from provisioner import clock
from provisioner.controller.attaching.flow import Attacher
from provisioner.controller.attaching.rules import Attached, Call, Kind, Target
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.attachments import Attachments
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import Watcher
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from provisioner.model.attachment import Attachment
from provisioner.model.decision import Later
from provisioner.model.errors import Reason, StorageError
from provisioner.model.modification import Initialization
from provisioner.model.node import CsiNode
from tests.builders import (
    ATTACHER_FINALIZER,
    DRIVER,
    INSTANCE,
    OTHER_INSTANCE,
    VOLUME,
    a_csi_node,
    a_node,
    a_persistent_volume,
    an_attachment,
    an_ec2_error,
)
from tests.controller.services import Ec2, Kube

DENIED = an_ec2_error(Reason.PERMISSION_DENIED)
TARGET = Target(VOLUME, INSTANCE)


class World:
    """An attacher, its caches filled, and its API server; EC2 is never asked."""

    def __init__(self, *attachments: Attachment, registered: CsiNode | None = None) -> None:
        self.kube = Kube()
        kube, volumes, metrics = cast("KubeClient", self.kube), cast("Volumes", Ec2()), Metrics()
        self.caches = Caches(kube, metrics, DRIVER)
        held = a_persistent_volume(finalizers=[ATTACHER_FINALIZER])
        self.caches.persistent_volumes._store.apply(held)
        self.caches.nodes._store.apply(a_node())
        if registered is not None:
            self.caches.csi_nodes._store.apply(registered)
        self.watcher = Watcher(volumes, metrics=metrics)
        self.ec2 = Attachments(cast("Ec2Calls", None))
        services = SimpleNamespace(
            settings=Settings(driver=DRIVER),
            client=kube,
            caches=self.caches,
            instances=self.ec2,
            watcher=self.watcher,
            watchers=SimpleNamespace(
                initializations=Watcher[Initialization](cast("Any", None), metrics=metrics)
            ),
            events=None,
            unclaimed=UnclaimedTags(volumes, self.caches, cluster_id=""),
            metrics=metrics,
        )
        self.attacher = Attacher(cast("Services", services))
        for attachment in attachments:
            self.caches.attachments._store.apply(attachment)
        self.attacher.subscribe()
        self.attacher.queue._ready.clear()  # what is there at the start is looked at anyway
        self.attacher.queue._entries.clear()

    def registers(self, csi_node: CsiNode, version: str = "9") -> None:
        metadata = msgspec.structs.replace(csi_node.metadata, resource_version=version)
        self.caches.csi_nodes.observe(msgspec.structs.replace(csi_node, metadata=metadata))

    @property
    def woken(self) -> set[str]:
        return set(self.attacher.queue._entries)


WAITING = an_attachment("csi-1", uid="1")
ELSEWHERE = an_attachment("csi-2", uid="2", node="node-2")


async def test_the_attachments_of_a_node_are_woken_when_its_plugin_registers():
    world = World(WAITING, ELSEWHERE, registered=a_csi_node(driver=None))

    world.registers(a_csi_node())

    assert world.woken == {"csi-1"}


async def test_they_are_woken_when_it_registers_under_another_instance():
    world = World(WAITING, ELSEWHERE, registered=a_csi_node())

    world.registers(a_csi_node(instance=OTHER_INSTANCE))

    assert world.woken == {"csi-1"}


async def test_nothing_is_woken_by_what_another_driver_registers():
    world = World(WAITING, registered=a_csi_node())

    world.registers(a_csi_node())

    assert world.woken == set()


async def test_an_attach_that_cannot_be_looked_at_tells_the_pod_why():
    world = World(WAITING, registered=a_csi_node())
    world.kube.answers = [WAITING]
    world.attacher._state.calls[WAITING.uid] = Call(Kind.ATTACH, TARGET, clock.now_s())
    world.watcher.trouble = DENIED

    after = await world.attacher.reconcile("csi-1")

    assert isinstance(after, Later)
    [(_, _, patch)] = world.kube.sent
    assert patch["status"]["attachError"]["message"] == DENIED.message


async def test_a_detach_that_cannot_be_looked_at_tells_why():
    leaving = an_attachment("csi-1", uid="1", attached=True, deleting=True)
    world = World(leaving, registered=a_csi_node())
    world.kube.answers = [leaving]
    world.attacher._state.calls[leaving.uid] = Call(Kind.DETACH, TARGET, clock.now_s())
    world.watcher.trouble = DENIED

    after = await world.attacher.reconcile("csi-1")

    assert isinstance(after, Later)
    [(_, _, patch)] = world.kube.sent
    assert patch["status"]["detachError"]["message"] == DENIED.message


class Denied:
    """Unclaimed tags, of which EC2 refuses to remove this volume's."""

    def is_tagged(self, _: str) -> bool:
        return True

    def trouble_with(self, volume_id: str) -> StorageError | None:
        return DENIED if volume_id == VOLUME else None

    def remove(self, *_: Any, **__: Any) -> None:
        return


async def test_an_attach_that_waits_for_a_tag_tells_the_pod_why_that_stays():
    world = World(WAITING, registered=a_csi_node())
    world.kube.answers = [WAITING]
    world.attacher._unclaimed = world.attacher._state._unclaimed = cast("UnclaimedTags", Denied())

    await world.attacher.reconcile("csi-1")

    [(_, _, patch)] = world.kube.sent
    assert patch["status"]["attachError"]["message"] == DENIED.message
    # Its volume may change, or go, while the tag stays.
    world.watcher._take_in([VOLUME], {}, asked_at=math.inf)
    assert world.woken == {"csi-1"}


@pytest.mark.parametrize(
    "stripped",
    [
        pytest.param(an_attachment("csi-1", uid="1", finalizers=[]), id="the finalizer"),
        pytest.param(an_attachment("csi-1", uid="1", annotations={}), id="the annotations"),
    ],
)
async def test_what_takes_the_record_of_an_attach_out_at_once_is_told_and_not_written_against(
    stripped,
):
    world = World(an_attachment("csi-1", uid="1", prepared=False), registered=a_csi_node())
    world.kube.answers = [stripped, stripped]

    with pytest.raises(StorageError, match="csi-1"):
        await world.attacher.reconcile("csi-1")

    prepared, told = (patch for _, _, patch in world.kube.sent)
    assert prepared["metadata"]["finalizers"] == [ATTACHER_FINALIZER]
    assert "webhook" in told["status"]["attachError"]["message"]


@pytest.mark.parametrize(("end", "told"), [("from", "true"), ("to", None)])
async def test_the_node_is_told_that_the_source_of_a_copy_is_mounted_read_only(end: Any, told: Any):
    world = World(WAITING, registered=a_csi_node())
    notes = {"ebs-provisioner.io/copy-of": f"{end} shop/move"}
    copied = a_persistent_volume(annotations=notes)
    metadata = structs.replace(copied.metadata, resource_version="99")
    world.caches.persistent_volumes._store.apply(structs.replace(copied, metadata=metadata))
    world.kube.answers = [WAITING]
    world.attacher._state.begin(WAITING)

    await world.attacher._attached(WAITING, Attached(TARGET, "/dev/xvdab", "snap-1"))

    [(_, _, patch)] = world.kube.sent
    metadata = patch["status"]["attachmentMetadata"]
    assert metadata.get("ebs-provisioner.io/read-only") == told


async def test_the_node_is_told_which_instance_the_devices_name_is_of():
    world = World(WAITING, registered=a_csi_node())
    world.kube.answers = [WAITING]
    world.attacher._state.begin(WAITING)

    await world.attacher._attached(WAITING, Attached(TARGET, "/dev/xvdab", "blank"))

    [(_, _, patch)] = world.kube.sent
    metadata = patch["status"]["attachmentMetadata"]
    assert metadata["devicePath"] == "/dev/xvdab"
    assert metadata["ebs-provisioner.io/instance-id"] == INSTANCE


async def test_an_attachment_removed_by_force_gives_its_device_name_back():
    world = World(WAITING, registered=a_csi_node())
    before = world.ec2.devices.reserve(INSTANCE, VOLUME, {})

    world.attacher._changed(WAITING, None)

    assert world.ec2.devices.reserve(INSTANCE, VOLUME, {}) != before
