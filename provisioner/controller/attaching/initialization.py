"""Attachments that wait until their volume has all of its data."""

from collections.abc import Callable
from dataclasses import dataclass, field

from provisioner.controller.attaching import initialization_rules as rules
from provisioner.controller.attaching.rules import View
from provisioner.controller.shared.services import Services
from provisioner.kube.events import Regarding
from provisioner.model.attachment import Attachment
from provisioner.model.modification import Initialization
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume

_REASON = "WaitingForInitialization"


@dataclass(frozen=True, slots=True)
class _Wait:
    """``told``: the topics on which an event was recorded."""

    persistent_volume: PersistentVolume
    volume: Volume
    since_s: float
    told: set[str] = field(default_factory=set)


class DataWaits:
    """Waits by the attachment's UID; the watcher of initializations ends them."""

    def __init__(self, services: Services) -> None:
        self._watcher = services.watchers.initializations
        self._events = services.events
        self._waits: dict[str, _Wait] = {}

    def holds_back(
        self,
        attachment: Attachment,
        persistent_volume: PersistentVolume | None,
        view: View,
        *,
        now_s: float,
        wake: Callable[[], None],
    ) -> bool:
        """Whether an attached volume is not to be reported yet; if so ``wake`` is called later.

        ``view`` is what EC2 shows of it now.
        """
        volume = view.seen
        if volume is None or persistent_volume is None:
            return False
        wait = self._waits.get(attachment.uid)
        if wait is None:
            since_s = view.call.sent_at_s if view.call is not None else now_s
            wait = self._waits[attachment.uid] = _Wait(persistent_volume, volume, since_s)
        sighting = self._watcher.sighting(volume.volume_id)
        found = None if sighting is None else sighting.found
        if not rules.is_awaited(persistent_volume, volume, found, now_s - wait.since_s):
            asks = persistent_volume.attaches_when_initialized and rules.made_of(volume)
            if asks and rules.is_untold(found):
                self._record(wait, rules.given_up(volume), warning=True)
            self.forget(attachment)
            return False
        self._tell(wait, found)
        self._watcher.watch(volume.volume_id, f"attach {attachment.uid}", wake)
        return True

    def is_waiting(self, attachment: Attachment, now_s: float) -> bool:
        """Whether there is nothing to do but wait, so that EC2 need not describe the volume itself.

        Not if EC2 has no status of the volume: it may have been deleted.
        """
        wait = self._waits.get(attachment.uid)
        if wait is None:
            return False
        sighting = self._watcher.sighting(wait.volume.volume_id)
        found = None if sighting is None else sighting.found
        if sighting is not None and found is None:
            return False
        waited_s = now_s - wait.since_s
        if not rules.is_awaited(wait.persistent_volume, wait.volume, found, waited_s):
            return False
        self._tell(wait, found)
        return True

    def forget(self, attachment: Attachment) -> None:
        """End the wait: the volume has all data, or it is no longer wanted."""
        wait = self._waits.pop(attachment.uid, None)
        if wait is not None:
            self._watcher.forget(wait.volume.volume_id, f"attach {attachment.uid}")

    def _tell(self, wait: _Wait, found: Initialization | None) -> None:
        """Say so once, once more when EC2 tells how far it is, and why it cannot be asked."""
        trouble = self._watcher.trouble_with(wait.volume.volume_id)
        message = rules.sentence(wait.volume, found)
        topic = "" if found is None or found.progress_percent is None else "its progress"
        if trouble is not None:
            topic, message = trouble.reason, f"{message}; cannot ask EC2: {trouble.message}"
        if topic not in wait.told:
            wait.told.add(topic)
            self._record(wait, message, warning=trouble is not None)

    def _record(self, wait: _Wait, message: str, *, warning: bool) -> None:
        holder = wait.persistent_volume.spec.claim_ref
        if holder is None:
            return
        claim = Regarding(
            kind="PersistentVolumeClaim",
            api_version="v1",
            name=holder.name,
            namespace=holder.namespace,
            uid=holder.uid,
        )
        self._events.record(claim, warning=warning, reason=_REASON, message=message)
