"""The attacher in virtual time, from the API server's objects to EC2's volumes and back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from provisioner.controller.attaching.flow import Attacher
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.attachments import Attachments
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import Watcher, Watchers
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import ATTACHMENTS
from provisioner.metrics import Metrics
from provisioner.model.attachment import (
    NODE_ID,
    Attachment,
    AttachmentError,
    AttachmentMetadata,
    AttachmentStatus,
)
from provisioner.model.errors import KubeError, Reason
from provisioner.model.names import VOLUME_ID
from provisioner.model.persistent_volume import VolumeAttributes
from tests.builders import (
    ATTACHER_FINALIZER,
    DELETED_AT,
    DRIVER,
    INSTANCE,
    VOLUME,
    a_csi_node,
    a_node,
    a_persistent_volume,
    an_attachment,
)
from tests.controller.cloud import Cloud
from tests.controller.services import Events
from tests.ec2.virtual_time import Clock, in_virtual_time

T = TypeVar("T")
WRITE_S = 0.01
_ERRORS = {"attachError": "attach_error", "detachError": "detach_error"}
DROP = "$deleteFromPrimitiveList/finalizers"


class AttachWorld:
    """Caches that see every write at once, the attacher, and its cloud.

    Attributes:
        attached_at: by attachment, when it was reported as attached; ``gone_at``: as detached.
        metadata: by attachment, what the node is told with it.
        told: the errors in the statuses of attachments, each once, and when.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._versions = itertools.count(1)
        self.cloud = Cloud(clock)
        self.attached_at: dict[str, float] = {}
        self.gone_at: dict[str, float] = {}
        self.metadata: dict[str, dict[str, str]] = {}
        self.told: list[tuple[float, str]] = []
        kube, metrics, volumes = cast("KubeClient", self), Metrics(), Volumes(self.cloud)
        self.caches = Caches(kube, metrics, DRIVER)
        cast("Any", self.caches).certain = self.certain
        self.watcher = Watcher(volumes, metrics=metrics, clock=clock)
        watchers = Watchers.over(
            volumes, Modifications(self.cloud), Snapshots(self.cloud), metrics, clock=clock
        )
        self.arrivals, self.events = watchers.initializations, Events()
        self.ec2 = Attachments(self.cloud, clock=clock)
        services = SimpleNamespace(
            settings=Settings(driver=DRIVER),
            client=kube,
            caches=self.caches,
            instances=self.ec2,
            watcher=self.watcher,
            watchers=watchers,
            events=self.events,
            unclaimed=UnclaimedTags(volumes, self.caches, cluster_id=""),
            metrics=metrics,
        )
        self.attacher = Attacher(cast("Services", services))
        self.attacher.queue._random = lambda: 1.0  # the longest waits after a failure

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The attacher at work."""
        self.attacher.subscribe()
        runs = (self.watcher.run(), self.arrivals.run(), self.attacher.queue.run())
        tasks = [asyncio.create_task(run) for run in runs]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.ec2.close()
            self.cloud.limiter.close()

    def wish(
        self,
        number: int = 1,
        *,
        node: int = 1,
        instance: str = INSTANCE,
        name: str = "",
        after_data: bool = False,
        handle: str = "",
        volume_mode: str | None = None,
        access_modes: Sequence[str] = ("ReadWriteOnce",),
        **more: Any,
    ) -> str:
        """Somebody wants volume ``number``, or ``handle``, on a node; the attachment's name.

        ``after_data``: its class has ``blockAttachUntilInitialized``.
        """
        name = name or f"csi-{number}"
        volume_id = handle or (VOLUME if number == 1 else f"vol-{number:017x}")
        held = a_persistent_volume(
            f"pv-{number}",
            handle=volume_id,
            finalizers=[ATTACHER_FINALIZER],
            volume_mode=volume_mode,
            access_modes=access_modes,
        )
        assert held.spec.csi is not None
        waits = VolumeAttributes(attaches_when_initialized="true") if after_data else None
        spec = replace(held.spec, csi=replace(held.spec.csi, volume_attributes=waits))
        self.caches.persistent_volumes._store.apply(replace(held, spec=spec))
        self.caches.nodes._store.apply(a_node(f"node-{node}"))
        self.caches.csi_nodes._store.apply(a_csi_node(f"node-{node}", instance=instance))
        recorded = {NODE_ID: instance, VOLUME_ID: volume_id}
        wanted = {"uid": name, "persistent_volume": f"pv-{number}", "annotations": recorded} | more
        self._put(an_attachment(name, node=f"node-{node}", version="0", **wanted))
        return name

    def delete(self, name: str) -> None:
        """Somebody deletes an attachment, which our finalizer keeps for a while."""
        found = self.caches.attachments.get(name)
        assert found is not None
        self._put(found, deletion_timestamp=DELETED_AT)

    async def certain(self, *_: Any) -> None:
        """What changes here is in the caches at once."""

    def remove_by_force(self, name: str) -> None:
        """The object goes, because its finalizer was taken out."""
        self.caches.attachments._store.remove(name, str(next(self._versions)))

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {resource.plural} {name}")

    async def patch(self, resource: Any, name: str, body: Any, **_: Any) -> Any:
        """A write of the attacher, as the API server carries it out."""
        await asyncio.sleep(WRITE_S)
        found = self.caches.attachments.get(name)
        if resource is not ATTACHMENTS or found is None or found.uid != body["metadata"]["uid"]:
            raise KubeError(Reason.CONFLICT, f"{name} is another one")
        if DROP in body["metadata"]:
            self.gone_at[name] = self.clock()
            asyncio.get_running_loop().call_later(WRITE_S, self.remove_by_force, name)
            return self._put(found, finalizers=[])
        status = found.status or AttachmentStatus()
        for field, error in body["status"].items():
            if field.endswith("Error") and error is not None:
                self.told.append((self.clock(), error["message"]))
                kept = AttachmentError(message=error["message"])
                status = replace(status, **{_ERRORS[field]: kept})
        if body["status"].get("attached"):
            self.attached_at[name] = self.clock()
            self.metadata[name] = body["status"]["attachmentMetadata"]
            told = AttachmentMetadata(device_path=self.metadata[name]["devicePath"])
            status = AttachmentStatus(attached=True, attachment_metadata=told)
        return self._put(replace(found, status=status))

    def _put(self, found: Attachment, **changes: Any) -> Attachment:
        version = str(next(self._versions))
        metadata = replace(found.metadata, resource_version=version, **changes)
        written = replace(found, metadata=metadata)
        self.caches.attachments._store.apply(written)
        return written


def in_attach_world(story: Callable[[AttachWorld], Coroutine[Any, Any, T]]) -> T:
    """Run a story in virtual time with the attacher at work."""

    async def whole(clock: Clock) -> T:
        world = AttachWorld(clock)
        async with world.running():
            return await story(world)

    return in_virtual_time(whole)
