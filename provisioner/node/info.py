"""What kubelet writes into CSINode: the instance, where it is, how many volumes of ours fit."""

import asyncio
import re
import time
from collections.abc import Callable

import structlog

from provisioner.decide import attachment_limit, instance_identity
from provisioner.decide.attachment_limit import LimitOptions
from provisioner.model.attachment_limit import (
    LIMIT_ANNOTATION,
    UNKNOWN,
    AttachmentLimit,
    known_limit,
)
from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.model.node_requests import NodeInfo
from provisioner.node.device_thread import in_thread
from provisioner.node.kube import NodeKube
from provisioner.node.metadata import Metadata

# How long it is believed that a volume is foreign; it may be given to Kubernetes where it is.
BELIEVED_S = 300.0
_AS_BEFORE = "foreign volumes are taken to be as many as before"
_DEVICE = re.compile(r"^(?:/dev/)?(?:sd|xvd)?([a-z]+)[0-9]*$")

log = structlog.get_logger(__name__)


class Foreign:
    """Counts the EBS volumes on this instance that no attachment of ours explains.

    A volume is ours if Kubernetes says so in the Node's status, or if there is an attachment of it
    to this node: that is made before a volume is attached and goes after it was detached, so that
    this holds also after a reboot with volumes attached, and while one comes or goes. Who is whose
    is remembered for as long as a volume is seen: at rest the API server is not asked at all.

    Args:
        kube: for the Node and its attachments.
        metadata: for the mapping that tells the volumes of Xen instances.
        volumes: the EBS volumes that the machine sees now; empty on Xen.
        believed_s: when a foreign volume is looked at again, in seconds.
    """

    def __init__(
        self,
        kube: NodeKube,
        metadata: Metadata,
        volumes: Callable[[], frozenset[str]],
        *,
        believed_s: float = BELIEVED_S,
    ) -> None:
        self._kube = kube
        self._metadata = metadata
        self._volumes = volumes
        self._believed_s = believed_s
        self._ours: set[str] = set()
        self._foreign: dict[str, float] = {}  # and when to look again

    async def count(self) -> int:
        """How many, the root volume among them.

        Raises:
            KubeError: there are volumes not seen before, and the API server does not tell.
        """
        seen = await in_thread(self._volumes)
        if not seen:
            return await self._count_by_mapping()
        self._ours &= seen
        now_s = time.monotonic()
        self._foreign = {each: at_s for each, at_s in self._foreign.items() if each in seen}
        believed = {each for each, at_s in self._foreign.items() if now_s < at_s}
        if unknown := seen - self._ours - believed:
            ours = (await self._kube.node()).volumes(self._kube.driver)
            for volume_id in sorted(unknown):
                await self._judge(volume_id, is_ours=volume_id in ours, now_s=now_s)
        return len(self._foreign)

    async def _judge(self, volume_id: str, *, is_ours: bool, now_s: float) -> None:
        if is_ours or await self._kube.attachment(volume_id) is not None:
            self._ours.add(volume_id)
            self._foreign.pop(volume_id, None)
        else:
            self._foreign[volume_id] = now_s + self._believed_s

    async def _count_by_mapping(self) -> int:
        """By the devices that a Xen instance was started with; those of later are not seen."""
        mapped = {_letters(device) for device in await self._metadata.mapped_devices()}
        if not mapped:
            return 1
        ours = (await self._kube.node()).volumes(self._kube.driver)
        for volume_id in sorted(ours):
            attachment = await self._kube.attachment(volume_id)
            if attachment is not None:
                mapped.discard(_letters(attachment.device_path))
        return 1 + len(mapped)


class Info:
    """NodeGetInfo, worked out anew each time it is asked: volumes and interfaces come and go."""

    def __init__(
        self, kube: NodeKube, metadata: Metadata, foreign: Foreign, options: LimitOptions
    ) -> None:
        self._kube = kube
        self._metadata = metadata
        self._foreign = foreign
        self._options = options
        self._limit: AttachmentLimit | None = None
        self._foreign_count: int | None = None
        self._told: dict[str, object] = {}
        self._warned: set[str] = set()
        self._lock = asyncio.Lock()

    async def get(self) -> NodeInfo:
        """What is true now.

        Raises:
            NodeError: METADATA_UNAVAILABLE, something is not known yet that the answer depends on.
        """
        async with self._lock:
            identity = await self._metadata.identity()
            fitting = await self._max_volumes(identity.instance_type)
        return NodeInfo(identity.instance_id, fitting, instance_identity.segments_of(identity))

    async def _max_volumes(self, instance_type: str) -> int:
        if self._options.attach_limit is not None:
            return self._options.attach_limit
        limit = await self._limit_of(instance_type)
        # What makes no difference is not asked for.
        interfaces = await self._metadata.interfaces() if limit.is_shared else 1
        foreign = await self._count_foreign() if self._options.reserved is None else 0
        fitting = attachment_limit.max_volumes(
            limit, foreign=foreign, interfaces=interfaces, options=self._options
        )
        self._tell(max_volumes=fitting, limit=str(limit), foreign=foreign, interfaces=interfaces)
        return fitting

    async def _limit_of(self, instance_type: str) -> AttachmentLimit:
        if self._limit is None:
            self._limit = known_limit(instance_type)
        if self._limit is not None:
            return self._limit
        try:
            text = (await self._kube.node()).annotations.get(LIMIT_ANNOTATION, "")
        except KubeError as exc:
            raise _unknown("how many volumes the instance type takes", exc) from exc
        try:
            self._limit = AttachmentLimit.parse(text) if text else None
        except ValueError as exc:
            self._warn_once(f"the annotation {LIMIT_ANNOTATION} of the Node is left aside: {exc}")
        if self._limit is None:
            self._warn_once(
                f"the instance type {instance_type} is in no table; {UNKNOWN} is taken for it "
                f"until the controller has written the annotation {LIMIT_ANNOTATION} on the Node"
            )
        return self._limit or UNKNOWN

    async def _count_foreign(self) -> int:
        try:
            self._foreign_count = await self._foreign.count()
            self._warned.discard(_AS_BEFORE)
        except KubeError as exc:
            if self._foreign_count is None:
                raise _unknown("which volumes on this instance are ours", exc) from exc
            self._warn_once(_AS_BEFORE, error=exc.message)
        return self._foreign_count

    def _warn_once(self, event: str, **facts: object) -> None:
        if event not in self._warned:
            self._warned.add(event)
            log.warning(event, **facts)

    def _tell(self, **facts: object) -> None:
        if any(self._told.get(name) != value for name, value in facts.items()):
            self._told |= facts
            log.info("this many volumes fit on this node", **facts)


def _unknown(what: str, exc: KubeError) -> NodeError:
    return NodeError(Reason.METADATA_UNAVAILABLE, f"it is not known yet {what}: {exc.message}")


def _letters(device: str) -> str:
    """What names a device to Xen, whose kernels call sdf also xvdf."""
    found = _DEVICE.match(device)
    return found[1] if found else device
