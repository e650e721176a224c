"""Reads a PersistentVolume: EC2's volume, its modifications, and where it is attached."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from provisioner.inspect.command_line import Readers
from provisioner.inspect.explain.gathering import told
from provisioner.inspect.explain.view_rules import Said, VolumeView
from provisioner.inspect.reading.time_rules import time_of
from provisioner.kube.resources import (
    ATTACHMENTS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    PLACED_VOLUMES,
)
from provisioner.model.attachment import NODE_ID, Attachment, attachment_name
from provisioner.model.budget import Ledger
from provisioner.model.ids import is_volume_id
from provisioner.model.names import MODIFICATIONS, VOLUME_ID
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.volume import AttachmentState, Volume

GOING = {"Released", "Failed"}
"""Phases in which a PersistentVolume should go."""


@dataclass(frozen=True, slots=True)
class _Around:
    """Where a volume is attached, and who asks for that; as in ``VolumeView``."""

    volume: Volume | None
    of_it: tuple[Attachment, ...] = ()
    is_all: bool = False
    nodes_of: Mapping[str, str] = field(default_factory=dict)
    wanted: Mapping[str, str] = field(default_factory=dict)


class Volumes:
    """Reads volumes for one question."""

    def __init__(self, readers: Readers, driver: str) -> None:
        self._cluster = readers.cluster
        self._cloud = readers.cloud
        self._driver = driver

    async def view(self, name: str, *, node: str = "", whole: bool = False) -> VolumeView:
        """A PersistentVolume.

        Args:
            name: of it.
            node: of the pod that needs it; "" for none.
            whole: whether it is asked about itself: other objects that name its volume count.
        """
        found = await self._cluster.one(PLACED_VOLUMES, name)
        if found is None:
            return VolumeView(name)
        volume_id = found.volume_id(self._driver) or ""
        asked = [volume_id] if is_volume_id(volume_id) else []
        volumes, modifications, said = await asyncio.gather(
            self._cloud.volumes(asked),
            self._cloud.modifications(asked),
            told.about(self._cluster, f"pv {name}", found),
        )
        volume = volumes.get(volume_id)
        around = await self._around(found, volume, node, whole=whole)
        ledger = _ledger(found, volume_id)
        modification, now = modifications.get(volume_id), datetime.now(UTC)
        knows = not self._cloud.misses("DescribeVolumesModifications")
        return VolumeView(
            name,
            found,
            around.volume,
            asked=bool(asked) and not self._cloud.misses("DescribeVolumes"),
            region=self._cloud.region,
            modification=modification,
            left=ledger.left(modification, now) if knows else None,
            more_at=ledger.more_at(modification, now),
            attachments=around.of_it,
            all_attachments=around.is_all,
            nodes_of=around.nodes_of,
            wanted=around.wanted,
            namesakes=await self._namesakes(found, volume_id) if whole else (),
            said=(*said, *(each for a in around.of_it for each in _errors(a))),
        )

    async def _around(
        self, found: PlacedVolume, volume: Volume | None, node: str, *, whole: bool
    ) -> _Around:
        """The one of the node by its name if all is well with it, else all that there are."""
        if found.volume_id(self._driver) is None:
            return _Around(volume)
        if node:
            here, volume = await self._at(found, volume, node)
            if here is not None and here.attached and not here.deleting and _agrees(here, volume):
                return _Around(volume, (here,))
        if not whole and not node and (volume is None or not volume.attachments):
            return _Around(volume)
        if found.phase not in GOING and not node and (near := await self._near(found, volume)):
            return _Around(volume, tuple(near))
        return await self._everywhere(found, volume)

    async def _at(
        self, found: PlacedVolume, volume: Volume | None, node: str
    ) -> tuple[Attachment | None, Volume | None]:
        """The attachment to a node; what EC2 does not have there is looked at twice.

        EC2 was read before the API server, so the volume may have come, or gone, in between.
        """
        name = attachment_name(found.handle, self._driver, node)
        here = await self._cluster.one(ATTACHMENTS, name)
        if here is None or volume is None or not here.attached or here.deleting:
            return here, volume
        there = volume.on(here.annotations.get(NODE_ID, ""))
        if there is not None and there.state is AttachmentState.ATTACHED:
            return here, volume
        volume = (await self._cloud.volumes([volume.volume_id])).get(volume.volume_id, volume)
        return await self._cluster.one_again(ATTACHMENTS, name), volume

    async def _everywhere(self, found: PlacedVolume, volume: Volume | None) -> _Around:
        """All attachments of the volume. What nobody seems to ask for is looked at twice.

        EC2 and the API server are not read at one moment: a detach that ends between the two
        leaves a volume attached without a VolumeAttachment. So EC2 is read again after the
        VolumeAttachments, and these after it.
        """
        every = await self._cluster.every(ATTACHMENTS)
        nodes_of = await self._nodes_of(every, volume)
        wanted = await self._wanted(found, every, volume, nodes_of)
        of_it = _of(every, found)
        if volume is not None and _unwanted(volume, of_it, nodes_of, wanted):
            volume = (await self._cloud.volumes([volume.volume_id])).get(volume.volume_id, volume)
            newer = await self._cluster.again(ATTACHMENTS)
            wanted = {each.spec.node_name: "" for each in of_it} | wanted
            nodes_of |= await self._nodes_of(newer, volume)
            wanted |= await self._wanted(found, newer, volume, nodes_of)
            of_it = _of(newer, found)
        is_all = not self._cluster.misses(ATTACHMENTS)
        return _Around(volume, tuple(of_it), is_all, nodes_of, wanted)

    async def _nodes_of(self, every: Sequence[Attachment], volume: Volume | None) -> dict[str, str]:
        """The nodes that are the instances where EC2 has the volume, among others."""
        nodes_of = {e.annotations.get(NODE_ID, ""): e.spec.node_name for e in every}
        if volume is None or all(each.instance_id in nodes_of for each in volume.attachments):
            return nodes_of
        for each in await self._cluster.every(CSI_NODES):
            driver = each.driver(self._driver)
            if driver is not None and driver.node_id:
                nodes_of[driver.node_id] = each.name
        nodes = await self._cluster.every(NODES)
        return nodes_of | {each.instance_id: each.name for each in nodes if each.instance_id}

    async def _wanted(
        self,
        found: PlacedVolume,
        every: Sequence[Attachment],
        volume: Volume | None,
        nodes_of: Mapping[str, str],
    ) -> dict[str, str]:
        """Nodes where EC2 has the volume, and another PersistentVolume asks for it."""
        if volume is None:
            return {}
        here = {nodes_of.get(each.instance_id, "") for each in volume.attachments}
        here -= {each.spec.node_name for each in _of(every, found)}
        wanted: dict[str, str] = {}
        for each in every:
            node, name = each.spec.node_name, each.spec.source.persistent_volume_name
            if node not in here or each.spec.attacher != self._driver or name == found.name:
                continue
            other = await self._cluster.one(PERSISTENT_VOLUMES, name) if name else None
            ids = {each.annotations.get(VOLUME_ID), other.volume_id(self._driver) if other else ""}
            if volume.volume_id in ids:
                of = f" of pv {name}" if name else ""
                wanted[node] = f"volumeattachment {each.name}{of}"
        return wanted

    async def _near(self, found: PlacedVolume, volume: Volume | None) -> list[Attachment]:
        """The attachment on each node where EC2 has the volume; none if one is not as it should be.

        A node is most often called like its instance in the private DNS.
        """
        ids = [each.instance_id for each in volume.attachments] if volume else []
        near: list[Attachment] = []
        for instance in (await self._cloud.instances(ids)).values() if ids else ():
            node = instance.private_dns_name
            name = attachment_name(found.handle, self._driver, node)
            here = await self._cluster.one(ATTACHMENTS, name)
            if here is not None and here.attached and not here.deleting:
                near.append(here)
        return near if len(near) == len(ids) else []

    async def _namesakes(self, found: PlacedVolume, volume_id: str) -> tuple[str, ...]:
        """Other PersistentVolumes of the volume, if it should be deleted."""
        if found.phase not in GOING or not volume_id:
            return ()
        every = await self._cluster.every(PERSISTENT_VOLUMES)
        same = (each for each in every if each.volume_id(self._driver) == volume_id)
        return tuple(each.name for each in same if each.name != found.name)


def _of(every: Sequence[Attachment], found: PlacedVolume) -> list[Attachment]:
    return [each for each in every if each.spec.source.persistent_volume_name == found.name]


def _unwanted(
    volume: Volume,
    of_it: Sequence[Attachment],
    nodes_of: Mapping[str, str],
    wanted: Mapping[str, str],
) -> bool:
    """Whether EC2 has it where no VolumeAttachment asks for it."""
    asked = {each.spec.node_name for each in of_it} | set(wanted)
    return any(nodes_of.get(each.instance_id) not in asked for each in volume.attachments)


def _agrees(here: Attachment, volume: Volume | None) -> bool:
    """Whether EC2 has it where Kubernetes says; also if EC2 could not be asked."""
    instance_id = here.annotations.get(NODE_ID, "")
    others = [e for e in volume.attachments if e.instance_id != instance_id] if volume else []
    return not others


def _errors(attachment: Attachment) -> list[Said]:
    about, status = f"volumeattachment {attachment.name}", attachment.status
    found = []
    if status is not None and status.attach_error is not None:
        error = status.attach_error
        found.append(
            told.of_status(about, "status.attachError", error.message, time_of(error.time))
        )
    if status is not None and status.detach_error is not None:
        error = status.detach_error
        found.append(
            told.of_status(about, "status.detachError", error.message, time_of(error.time))
        )
    return found


def _ledger(found: PlacedVolume, volume_id: str) -> Ledger:
    text = found.annotations.get(MODIFICATIONS)
    ledger = Ledger.read(text, persistent_volume_uid=found.uid, volume_id=volume_id)
    return ledger.plausible(datetime.now(UTC))
