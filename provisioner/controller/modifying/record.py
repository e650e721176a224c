"""What is recorded about growing and changing: on the persistent volume, the claim, in events.

The persistent volume is written first, then the claim: kubelet and the volume controller read both,
and the next pass finds a crash in between. Events are those of the stock resizer, so that alerts on
them keep working.
Source: external-resizer 2.0 pkg/controller and pkg/modifycontroller.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from provisioner.classes import volume_attributes_class_rules as class_parameters
from provisioner.controller.modifying import class_rules
from provisioner.controller.modifying.claim_status_rules import StatusEdit
from provisioner.controller.modifying.growth_rules import PRE_RESIZE_CAPACITY
from provisioner.controller.modifying.rules import Part, Requested
from provisioner.controller.shared.services import Services
from provisioner.kube.client import Patch, patch_status
from provisioner.kube.events import Regarding
from provisioner.kube.resources import CLAIMS, PERSISTENT_VOLUMES
from provisioner.model.claim import Claim
from provisioner.model.errors import StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.volume import GIB

_Edit = Callable[[StatusEdit], None]


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class ModifyRecord:
    """Writes of one flow; they raise ``KubeError``, CONFLICT when the claim has changed since."""

    def __init__(self, services: Services) -> None:
        self._client = services.client
        self._caches = services.caches
        self._events = services.events
        self._driver = services.settings.driver
        self._component = f"external-resizer {services.settings.driver}"

    async def _write(self, claim: Claim, *edits: _Edit) -> bool:
        """Change the claim's status in one patch; whether there was anything to change."""
        edit = StatusEdit(claim, utc_now())
        for each in edits:
            each(edit)
        if edit.is_empty:
            return False
        changed = await patch_status(
            self._client,
            CLAIMS,
            claim,
            edit.status,
            annotations=edit.annotations,
            kind=Patch.STRATEGIC,
        )
        self._caches.claims.observe(changed)
        return True

    async def begin(self, claim: Claim, requested: Requested, message: str = "") -> None:
        """Record what is about to be sent, or waits; after a crash the targets are the same."""
        grow, name = requested.grow, requested.class_name
        old_size, old_modify = claim.allocated_storage, claim.modify_status
        edits: list[_Edit] = []
        if grow is not None:
            edits.append(lambda edit: edit.growing(grow.target, message))
        if name:
            edits.append(lambda edit: edit.changing(name, message))
        if not await self._write(claim, *edits):
            return
        volume = claim.spec.volume_name
        if grow is not None and grow.target != old_size:
            self.event(claim, "Resizing", f"External resizer is resizing volume {volume}")
        if name and (old_modify is None or old_modify.target_volume_attributes_class_name != name):
            text = f"external resizer is modifying volume {claim.name} with vac {name}"
            self.event(claim, "VolumeModify", text)

    async def finish(
        self,
        claim: Claim,
        persistent_volume: PersistentVolume,
        requested: Requested,
        size_gib: int,
    ) -> None:
        """Record what the volume has of the request; ``size_gib`` is its size."""
        grow, name = requested.grow, requested.class_name
        await self._finish_persistent_volume(claim, persistent_volume, requested, size_gib)
        edits: list[_Edit] = []
        if grow is not None and claim.is_block:
            edits.append(lambda edit: edit.grown(f"{size_gib}Gi"))
        elif grow is not None:
            edits.append(lambda edit: edit.file_system_pending(grow.target))
        if name:
            edits.append(lambda edit: edit.changed(name))
        await self._write(claim, *edits)
        if grow is not None and claim.is_block:
            self.event(claim, "VolumeResizeSuccessful", "Resize volume succeeded")
        elif grow is not None:
            text = "Require file system resize of volume on node"
            self.event(claim, "FileSystemResizeRequired", text)
        if name is not None:
            text = (
                f"external resizer modified volume {claim.name} with vac {name} successfully"
                if name
                else f"external resizer modified volume {claim.name} as its annotations request"
            )
            self.event(claim, "VolumeModifySuccessful", text)

    async def _finish_persistent_volume(
        self,
        claim: Claim,
        persistent_volume: PersistentVolume,
        requested: Requested,
        size_gib: int,
    ) -> None:
        grow, name = requested.grow, requested.class_name
        spec: dict[str, Any] = {}
        annotations: dict[str, str] = {}
        if grow is not None and parse_bytes(persistent_volume.capacity or "0") < size_gib * GIB:
            spec["capacity"] = {"storage": f"{size_gib}Gi"}
            if not claim.is_block:
                annotations[PRE_RESIZE_CAPACITY] = claim.capacity
        if name and persistent_volume.attributes_class_name != name:
            spec["volumeAttributesClassName"] = name
        if name == "":
            asked = class_parameters.legacy(claim.annotations, self._driver)
            annotations |= {f"{self._driver}/{key}": value for key, value in asked.items()}
        if spec or annotations:
            await self.patch_persistent_volume(persistent_volume, annotations, spec)

    async def refused(
        self, claim: Claim, part: Part, requested: Requested, error: StorageError, *, for_good: bool
    ) -> None:
        """Conditions of a part that was refused; ``for_good``: only another request helps."""
        grow, name = requested.grow, requested.class_name
        reason, message = error.reason.value, error.message
        if part is Part.SIZE and grow is not None:
            text = f"{reason}: {message}"
            await self._write(
                claim, lambda edit: edit.cannot_grow(grow.target, text, for_good=for_good)
            )
        elif name:
            await self._write(
                claim, lambda edit: edit.cannot_change(name, reason, message, for_good=for_good)
            )

    async def class_missing(self, claim: Claim, name: str) -> None:
        """Its class does not exist."""
        await self._write(claim, lambda edit: edit.class_missing(name))

    async def class_broken(self, claim: Claim, broken: class_rules.Broken) -> None:
        """No volume can get its class; for annotations there is no condition."""
        name, message = broken.name, broken.message
        if name:
            await self._write(
                claim,
                lambda edit: edit.cannot_change(name, "InvalidClass", message, for_good=True),
            )

    async def cancel(self, claim: Claim) -> None:
        """A change that was never sent is no longer requested."""
        await self._write(claim, lambda edit: edit.cancelled())
        self.event(claim, "VolumeModifyCanceled", "Cancelled modify.")

    async def tidy(self, claim: Claim, persistent_volume: PersistentVolume) -> None:
        """The file system has grown too: the capacity from before is not needed any more."""
        if PRE_RESIZE_CAPACITY not in persistent_volume.annotations or not claim.capacity:
            return
        if parse_bytes(claim.capacity) >= parse_bytes(persistent_volume.capacity or "0"):
            await self.patch_persistent_volume(persistent_volume, {PRE_RESIZE_CAPACITY: None}, {})

    async def patch_persistent_volume(
        self,
        persistent_volume: PersistentVolume,
        annotations: Mapping[str, str | None],
        spec: Mapping[str, Any],
        *,
        guarded: bool = False,
    ) -> None:
        """Change a persistent volume; ``guarded``: only if it has not changed since it was read."""
        meta = persistent_volume.metadata
        metadata: dict[str, Any] = {"uid": meta.uid}
        if guarded:
            metadata["resourceVersion"] = meta.resource_version
        if annotations:
            metadata["annotations"] = dict(annotations)
        body: dict[str, Any] = {"metadata": metadata}
        if spec:
            body["spec"] = dict(spec)
        changed = await self._client.patch(PERSISTENT_VOLUMES, meta.name, body, kind=Patch.MERGE)
        self._caches.persistent_volumes.observe(changed)

    def report_failure(self, claim: Claim, parts: frozenset[Part], text: str) -> None:
        """A Warning about each part."""
        if Part.SIZE in parts:
            what = f'resize volume "{claim.spec.volume_name}" by resizer "{self._driver}" failed'
            self.event(claim, "VolumeResizeFailed", f"{what}: {text}", warning=True)
        if Part.ATTRIBUTES in parts:
            self.event(claim, "VolumeModifyFailed", text, warning=True)

    def report_waiting(self, claim: Claim, parts: frozenset[Part], text: str) -> None:
        """A Normal event: it takes time."""
        self.event(claim, "Resizing" if Part.SIZE in parts else "VolumeModify", text)

    def event(self, claim: Claim, reason: str, text: str, *, warning: bool = False) -> None:
        """An event on the claim."""
        self._events.record(
            Regarding.of(claim, "PersistentVolumeClaim"),
            warning=warning,
            reason=reason,
            message=text,
            component=self._component,
        )
