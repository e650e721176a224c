"""The claims that this node's volumes belong to; asked once per volume, remembered while seen."""

import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import structlog

from provisioner.model.errors import KubeError
from provisioner.node.kube import NodeKube

# How long a volume without an attachment is left alone: the root volume has none for good.
FOREIGN_S = 300.0
AGAIN_S = 15.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class VolumeName:
    """What people know a volume by; "" for what is not known, as of inline volumes.

    Attributes:
        persistent_volume: its name.
        namespace, claim: of the claim that it is bound to.
        device_path: what it was attached as, for devices that are known by nothing else.
    """

    persistent_volume: str
    namespace: str
    claim: str
    device_path: str


class VolumeNames:
    """Looks up names by attachment and persistent volume.

    Args:
        kube: where they are.
        foreign_s: when a volume that is not ours is looked at again, in seconds.
        again_s: when the API server is asked again after it failed, in seconds.
    """

    def __init__(
        self, kube: NodeKube, *, foreign_s: float = FOREIGN_S, again_s: float = AGAIN_S
    ) -> None:
        self._kube = kube
        self._foreign_s = foreign_s
        self._again_s = again_s
        self._names: dict[str, VolumeName] = {}
        self._foreign: dict[str, float] = {}  # until when
        self._ask_at_s = 0.0
        self._told: frozenset[str] = frozenset()
        self._told_until_s = 0.0

    async def of(self, seen: AbstractSet[str]) -> dict[str, VolumeName]:
        """The names of those among these volumes that are ours, as far as they are known."""
        now_s = time.monotonic()
        self._names = {each: name for each, name in self._names.items() if each in seen}
        self._foreign = {
            each: until_s
            for each, until_s in self._foreign.items()
            if each in seen and now_s < until_s
        }
        if now_s >= self._ask_at_s:
            try:
                for volume_id in sorted(seen - self._names.keys() - self._foreign.keys()):
                    await self._look_up(volume_id, now_s)
            except KubeError as exc:
                self._ask_at_s = now_s + self._again_s
                log.info("some volumes are not measured: their claims are not known", why=str(exc))
        return dict(self._names)

    async def told(self) -> frozenset[str]:
        """The volumes that Kubernetes says are here, or said last while it cannot be asked.

        For machines that see none by themselves, as on Xen.
        """
        now_s = time.monotonic()
        if now_s >= self._told_until_s:
            self._told_until_s = now_s + self._again_s
            try:
                self._told = (await self._kube.node()).volumes(self._kube.driver)
            except KubeError as exc:
                log.info("volumes on this node are as they were", why=exc.message)
        return self._told

    async def _look_up(self, volume_id: str, now_s: float) -> None:
        attachment = await self._kube.attachment(volume_id)
        if attachment is None:
            self._foreign[volume_id] = now_s + self._foreign_s
            return
        name = attachment.persistent_volume
        volume = await self._kube.persistent_volume(name) if name else None
        claim = volume.spec.claim_ref if volume is not None else None
        namespace, claim_name = (claim.namespace, claim.name) if claim is not None else ("", "")
        self._names[volume_id] = VolumeName(name, namespace, claim_name, attachment.device_path)
