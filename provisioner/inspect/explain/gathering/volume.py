"""Reads a PersistentVolume: EC2's volume, its modifications, and where it is attached."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from provisioner.inspect.command_line import Readers
from provisioner.inspect.explain.chain_rules import time_of
from provisioner.inspect.explain.gathering import told
from provisioner.inspect.explain.view_rules import Said, VolumeView
from provisioner.kube.resources import ATTACHMENTS, NODES, PERSISTENT_VOLUMES, PLACED_VOLUMES
from provisioner.model.attachment import NODE_ID, Attachment, attachment_name
from provisioner.model.budget import Ledger
from provisioner.model.ids import is_volume_id
from provisioner.model.names import MODIFICATIONS
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.volume import Volume

_GOING = {"Released", "Failed"}


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
        attachments, is_all, nodes_of = await self._attachments(found, volume, node, whole=whole)
        ledger = _ledger(found, volume_id)
        modification, now = modifications.get(volume_id), datetime.now(UTC)
        knows = not self._cloud.misses("DescribeVolumesModifications")
        return VolumeView(
            name,
            found,
            volume,
            asked=bool(asked) and not self._cloud.misses("DescribeVolumes"),
            region=self._cloud.region,
            modification=modification,
            left=ledger.left(modification, now) if knows else None,
            more_at=ledger.more_at(modification, now),
            attachments=tuple(attachments),
            all_attachments=is_all,
            nodes_of=nodes_of,
            namesakes=await self._namesakes(found, volume_id) if whole else (),
            said=(*said, *(each for a in attachments for each in _errors(a))),
        )

    async def _attachments(
        self, found: PlacedVolume, volume: Volume | None, node: str, *, whole: bool
    ) -> tuple[Sequence[Attachment], bool, Mapping[str, str]]:
        """The one of the node by its name if all is well with it, else all that there are."""
        if node:
            name = attachment_name(found.named_volume or "", self._driver, node)
            here = await self._cluster.one(ATTACHMENTS, name)
            if here is not None and here.attached and not here.deleting and _agrees(here, volume):
                return [here], False, {}
        if not whole and not node and (volume is None or not volume.attachments):
            return [], False, {}
        if found.phase not in _GOING and not node and (near := await self._near(found, volume)):
            return near, False, {}
        every = await self._cluster.every(ATTACHMENTS)
        of_it = [e for e in every if e.spec.source.persistent_volume_name == found.name]
        nodes_of = {e.annotations.get(NODE_ID, ""): e.spec.node_name for e in every}
        strange = volume is not None and any(
            each.instance_id not in nodes_of for each in volume.attachments
        )
        if strange:
            nodes = await self._cluster.every(NODES)
            nodes_of |= {each.instance_id: each.name for each in nodes if each.instance_id}
        return of_it, not self._cluster.misses(ATTACHMENTS), nodes_of

    async def _near(self, found: PlacedVolume, volume: Volume | None) -> list[Attachment]:
        """The attachment on each node where EC2 has the volume; none if one is not as it should be.

        A node is most often called like its instance in the private DNS.
        """
        ids = [each.instance_id for each in volume.attachments] if volume else []
        near: list[Attachment] = []
        for instance in (await self._cloud.instances(ids)).values() if ids else ():
            node = instance.private_dns_name
            name = attachment_name(found.named_volume or "", self._driver, node)
            here = await self._cluster.one(ATTACHMENTS, name)
            if here is not None and here.attached and not here.deleting:
                near.append(here)
        return near if len(near) == len(ids) else []

    async def _namesakes(self, found: PlacedVolume, volume_id: str) -> tuple[str, ...]:
        """Other PersistentVolumes of the volume, if it should be deleted."""
        if found.phase not in _GOING or not volume_id:
            return ()
        every = await self._cluster.every(PERSISTENT_VOLUMES)
        same = (each for each in every if each.volume_id(self._driver) == volume_id)
        return tuple(each.name for each in same if each.name != found.name)


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
