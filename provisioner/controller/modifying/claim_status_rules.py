"""What is written to the status of a claim whose volume grows or changes: one patch for both.

Strategic merge patches: conditions are merged by their type, so that those of kubelet and of others
stay. Nothing is written twice: every write is an event for all who watch claims.
Source: external-resizer 2.0 pkg/util and pkg/controller (Kubernetes 1.36).
"""

from datetime import UTC, datetime
from typing import Any

from provisioner.controller.modifying.class_rules import ModifyStatus
from provisioner.controller.modifying.growth_rules import FILE_SYSTEM_PENDING, ResizeStatus
from provisioner.model.claim import Claim, ModifyVolumeStatus
from provisioner.model.quantity import parse_bytes

NO_NODE_EXPANSION = "volume.kubernetes.io/node-expansion-not-required"
RESIZING, RESIZE_ERROR = "Resizing", "ControllerResizeError"
NODE_ERROR = "NodeResizeError"
MODIFYING, MODIFY_ERROR = "ModifyingVolume", "ModifyVolumeError"
_FILE_SYSTEM_MESSAGE = (
    "Waiting for user to (re-)start a pod to finish file system resize of volume on node."
)
_TRUE = "True"


class StatusEdit:
    """Collects what is to change in one claim's status.

    Attributes:
        status: the patch of ``status``.
        annotations: that of ``metadata.annotations``.
    """

    def __init__(self, claim: Claim, now: datetime) -> None:
        self._claim = claim
        self._at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.status: dict[str, Any] = {}
        self.annotations: dict[str, str | None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether all is there already."""
        return not self.status and not self.annotations

    def growing(self, target: str, message: str = "") -> None:
        """The volume is about to grow to this size, or waits for that."""
        is_new = (
            self._claim.allocated_storage != target
            or self._claim.resize_status != ResizeStatus.CONTROLLER_IN_PROGRESS
        )
        if is_new:
            self._remove(FILE_SYSTEM_PENDING, RESIZE_ERROR, NODE_ERROR)
            self._allocate(target, ResizeStatus.CONTROLLER_IN_PROGRESS)
        if NO_NODE_EXPANSION in self._claim.annotations:
            self.annotations[NO_NODE_EXPANSION] = None
        self._set(RESIZING, message=message)

    def cannot_grow(self, target: str, message: str, *, for_good: bool) -> None:
        """EC2 has refused the size; ``for_good``: only another request helps."""
        status = (
            ResizeStatus.CONTROLLER_INFEASIBLE if for_good else ResizeStatus.CONTROLLER_IN_PROGRESS
        )
        self._allocate(target, status)
        self._set(RESIZE_ERROR, message=f"failed to expand pvc with {message}")

    def file_system_pending(self, target: str) -> None:
        """The volume has grown; kubelet acts only when it reads this status."""
        self._allocate(target, ResizeStatus.NODE_PENDING)
        self._remove(RESIZING, RESIZE_ERROR, NODE_ERROR)
        self._set(FILE_SYSTEM_PENDING, message=_FILE_SYSTEM_MESSAGE)

    def grown(self, size: str) -> None:
        """All is done: the device is the volume, and has no file system of ours."""
        if not _is_same(self._claim.capacity, size):
            self.status["capacity"] = {"storage": size}
        if self._claim.resize_status:
            self.status["allocatedResourceStatuses"] = {"storage": None}
        self._remove(RESIZING, RESIZE_ERROR, NODE_ERROR, FILE_SYSTEM_PENDING)
        if self._claim.annotations.get(NO_NODE_EXPANSION) != "true":
            self.annotations[NO_NODE_EXPANSION] = "true"

    def changing(self, name: str, message: str = "") -> None:
        """The volume is about to be brought to this class, or waits for that."""
        is_new = self._modify(name, ModifyStatus.IN_PROGRESS)
        if is_new:
            self._remove(MODIFY_ERROR)
        self._set(MODIFYING, message=message or f'Modifying volume to "{name}" is in progress.')

    def class_missing(self, name: str) -> None:
        """There is no such class yet."""
        self._modify(name, ModifyStatus.PENDING)

    def cannot_change(self, name: str, reason: str, message: str, *, for_good: bool) -> None:
        """EC2 has refused the class; ``for_good``: only another request helps."""
        self._modify(name, ModifyStatus.INFEASIBLE if for_good else ModifyStatus.IN_PROGRESS)
        if for_good:
            self._set(MODIFYING, message=f'Modifying volume to "{name}" failed. Waiting for retry.')
        self._set(MODIFY_ERROR, reason=reason, message=message)

    def changed(self, name: str) -> None:
        """The volume has this class."""
        self._settle()
        if self._claim.current_attributes_class_name != name:
            self.status["currentVolumeAttributesClassName"] = name

    def cancelled(self) -> None:
        """A change that was never sent is no longer requested."""
        self._settle()

    def _settle(self) -> None:
        if self._claim.modify_status is not None:
            self.status["modifyVolumeStatus"] = None
        self._remove(MODIFYING, MODIFY_ERROR)

    def _allocate(self, target: str, status: ResizeStatus) -> None:
        if self._claim.allocated_storage != target:
            self.status["allocatedResources"] = {"storage": target}
        if self._claim.resize_status != status:
            self.status["allocatedResourceStatuses"] = {"storage": status.value}

    def _modify(self, name: str, status: ModifyStatus) -> bool:
        new = ModifyVolumeStatus(target_volume_attributes_class_name=name, status=status.value)
        if self._claim.modify_status == new:
            return False
        self.status["modifyVolumeStatus"] = {
            "targetVolumeAttributesClassName": name,
            "status": status.value,
        }
        return True

    def _set(self, kind: str, *, reason: str = "", message: str = "") -> None:
        found = self._claim.condition(kind)
        said = (_TRUE, reason, message)
        if found is not None and (found.status, found.reason, found.message) == said:
            return
        condition = {"type": kind, "status": _TRUE, "lastTransitionTime": self._at}
        if found is not None and found.status == _TRUE:
            del condition["lastTransitionTime"]
        condition |= {"reason": reason, "message": message}
        self._conditions().append(condition)

    def _remove(self, *kinds: str) -> None:
        gone = [kind for kind in kinds if self._claim.condition(kind) is not None]
        if gone:
            self._conditions().extend({"type": kind, "$patch": "delete"} for kind in gone)

    def _conditions(self) -> list[dict[str, str]]:
        conditions: list[dict[str, str]] = self.status.setdefault("conditions", [])
        return conditions


def _is_same(written: str, size: str) -> bool:
    return bool(written) and parse_bytes(written) == parse_bytes(size)
