"""NodeGetInfo, which the kubelet writes into CSINode: instance, topology, and volume limit."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

import structlog

from provisioner.model.errors import KubeError, NodeError, Reason, StorageError
from provisioner.model.instance_type_limit import UNKNOWN, AttachmentLimit, NotedLimit, known_limit
from provisioner.model.names import ATTACHMENT_LIMIT
from provisioner.model.node import TYPE_LABEL
from provisioner.node.instance import documents
from provisioner.node.instance.attachments import AttachmentLookups
from provisioner.node.instance.kube import NodeKube
from provisioner.node.instance.metadata import Metadata
from provisioner.node.instance.volume_limit_rules import LimitOptions, max_volumes
from provisioner.node.requests import NodeInfo
from provisioner.tell_once import TellOnce

# How long to cache that a volume is ours: an attached volume may be removed from Kubernetes.
BELIEVED_S = 300.0
# How long to cache the controller's annotation; kubelet may call every 10 s.
NOTE_BELIEVED_S = 60.0
_AS_BEFORE = "cannot count foreign volumes; using the previous count"
_DEVICE = re.compile(r"^(?:/dev/)?(?:sd|xvd)?([a-z]+)[0-9]*$")

log = structlog.get_logger(__name__)


class ForeignVolumes:
    """Counts the EBS volumes on this instance that no attachment of ours explains.

    A volume is ours if the Node's status lists it, or if there is a VolumeAttachment of it to this
    node. That exists from before the attach until after the detach, so the count is right after a
    reboot with volumes attached, and during an attach or detach. That a volume is ours is cached
    for some minutes, that it is not for longer, so that an idle node hardly calls the API server.

    Args:
        kube: for the Node.
        attachments: tells which volumes have one.
        metadata: for the block device mapping of Xen instances.
        volumes: the EBS volumes that the machine has now; empty on Xen.
        believed_s: how long to cache that a volume is ours, in seconds.
    """

    def __init__(
        self,
        kube: NodeKube,
        attachments: AttachmentLookups,
        metadata: Metadata,
        volumes: Callable[[], Awaitable[frozenset[str]]],
        *,
        believed_s: float = BELIEVED_S,
    ) -> None:
        self._kube = kube
        self._attachments = attachments
        self._metadata = metadata
        self._volumes = volumes
        self._believed_s = believed_s
        self._ours_until_s: dict[str, float] = {}  # then it is asked again

    async def count(self) -> int:
        """How many, including the root volume.

        Raises:
            KubeError: the API server cannot be asked whether a volume is ours.
            NodeError: TIMED_OUT, a disk hangs.
        """
        seen = await self._volumes()
        if not seen:
            return await self._count_by_mapping()
        now_s = time.monotonic()
        self._attachments.keep(seen)
        ours = {each: until_s for each, until_s in self._ours_until_s.items() if each in seen}
        self._ours_until_s = ours
        foreign = {each for each in seen - ours.keys() if self._attachments.is_foreign(each)}
        if unknown := {each for each in seen - foreign if now_s >= ours.get(each, now_s)}:
            named = (await self._kube.node()).volumes(self._kube.driver)
            for each in foreign & named:
                self._attachments.ask_again(each)
            for each in sorted(unknown | (seen & named)):
                if each in named or await self._attachments.find(each) is not None:
                    ours[each] = now_s + self._believed_s
                else:
                    ours.pop(each, None)
        return len(seen - ours.keys())

    async def _count_by_mapping(self) -> int:
        """By the devices that a Xen instance was started with; later ones are not known."""
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
    """Answers NodeGetInfo, computed for each call: volumes and interfaces come and go.

    Args:
        kube: for the limit of an instance type that is not in the table.
        metadata: which instance this is, and its interfaces.
        foreign: counts the volumes that are not ours.
        options: what the administrator has set.
        note_believed_s: how long to cache the limit in the Node's annotation, in seconds.
    """

    def __init__(
        self,
        kube: NodeKube,
        metadata: Metadata,
        foreign: ForeignVolumes,
        options: LimitOptions,
        *,
        note_believed_s: float = NOTE_BELIEVED_S,
    ) -> None:
        self._kube = kube
        self._metadata = metadata
        self._foreign = foreign
        self._options = options
        self._note_believed_s = note_believed_s
        self._noted: NotedLimit | None = None
        self._read_note_at_s = 0.0
        self._foreign_count: int | None = None
        self._logged: dict[str, object] = {}
        self._warned = TellOnce()
        self._lock = asyncio.Lock()

    async def get(self) -> NodeInfo:
        """The current answer.

        Raises:
            NodeError: METADATA_UNAVAILABLE, something that it depends on is not known yet.
        """
        async with self._lock:
            identity = await self._metadata.identity()
            fitting = await self._max_volumes(identity.instance_type)
        return NodeInfo(identity.instance_id, fitting, documents.segments_of(identity))

    async def _max_volumes(self, instance_type: str) -> int:
        if self._options.attach_limit is not None:
            return self._options.attach_limit
        limit = await self._limit_of(instance_type)
        # What makes no difference is not read.
        interfaces = await self._metadata.interfaces() if limit.is_shared else 1
        foreign = await self._count_foreign() if self._options.reserved is None else 0
        fitting = max_volumes(limit, foreign=foreign, interfaces=interfaces, options=self._options)
        self._log_change(
            max_volumes=fitting, limit=str(limit), foreign=foreign, interfaces=interfaces
        )
        return fitting

    async def _limit_of(self, instance_type: str) -> AttachmentLimit:
        limit = known_limit(instance_type)
        if limit is not None:
            return limit
        noted = self._noted
        if noted is not None and noted.instance_type != instance_type:
            noted = None
        read: NotedLimit | None = None
        if noted is None or time.monotonic() >= self._read_note_at_s:
            read = await self._read_note(may_fail=noted is not None)
        if read is not None and read.instance_type == instance_type:
            self._noted = noted = read
        if noted is None:
            self._warn_of_default(instance_type, read)
        return noted.limit if noted is not None else UNKNOWN

    async def _read_note(self, *, may_fail: bool) -> NotedLimit | None:
        """The Node's annotation; None if it has none, or none that can be read."""
        try:
            text = (await self._kube.node()).annotations.get(ATTACHMENT_LIMIT, "")
        except KubeError as exc:
            if may_fail:
                return None
            raise _unknown("how many volumes the instance type takes", exc) from exc
        self._read_note_at_s = time.monotonic() + self._note_believed_s
        try:
            return NotedLimit.parse(text) if text else None
        except ValueError as exc:
            self._warn_once(f"the annotation {ATTACHMENT_LIMIT} of the Node is ignored: {exc}")
            return None

    def _warn_of_default(self, instance_type: str, read: NotedLimit | None) -> None:
        other = ""
        if read is not None:
            other = f"; the present one is for {read.instance_type}, by the label {TYPE_LABEL}"
        self._warn_once(
            f"the instance type {instance_type} is not in the table; assuming {UNKNOWN} until "
            f"the controller has written the annotation {ATTACHMENT_LIMIT} on the Node{other}"
        )

    async def _count_foreign(self) -> int:
        try:
            self._foreign_count = await self._foreign.count()
            self._warned.forget(_AS_BEFORE)
        except StorageError as exc:
            if self._foreign_count is None:
                raise _unknown("which volumes on this instance are ours", exc) from exc
            self._warn_once(_AS_BEFORE, error=exc.message)
        return self._foreign_count

    def _warn_once(self, event: str, **facts: object) -> None:
        if self._warned.is_news(event):
            log.warning(event, **facts)

    def _log_change(self, **facts: object) -> None:
        if any(self._logged.get(name) != value for name, value in facts.items()):
            self._logged |= facts
            log.info("volume limit of this node", **facts)


def _unknown(what: str, exc: StorageError) -> NodeError:
    return NodeError(Reason.METADATA_UNAVAILABLE, f"it is not known yet {what}: {exc.message}")


def _letters(device: str) -> str:
    """The letters of a Xen device, whose kernels may call sdf xvdf."""
    found = _DEVICE.match(device)
    return found[1] if found else device
