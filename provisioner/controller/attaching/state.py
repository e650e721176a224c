"""What this process knows of attachments beside their objects; it reads and sends nothing."""

from collections.abc import Callable

from provisioner import clock
from provisioner.controller.attaching import sole_writer_rules
from provisioner.controller.attaching.initialization import DataWaits
from provisioner.controller.attaching.rules import Attach, Attached, AttachStep, Call, Target, View
from provisioner.controller.attaching.sole_writer_rules import Rival
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.watcher import VolumeWatcher
from provisioner.metrics import Metrics
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.errors import StorageError
from provisioner.model.names import VOLUME_ID
from provisioner.model.persistent_volume import PersistentVolume


class AttachmentMemory:
    """Memory by UID, so that a late result never reaches an attachment made anew under its name.

    ``wake`` has an attachment (by name) looked at again. ``calls`` holds the last EC2 call for
    each attachment until EC2 has been seen to agree.
    """

    def __init__(
        self,
        *,
        caches: Caches,
        watcher: VolumeWatcher,
        data: DataWaits,
        unclaimed: UnclaimedTags,
        metrics: Metrics,
        wake: Callable[[str], None],
    ) -> None:
        self._caches = caches
        self._watcher = watcher
        self._data = data
        self._unclaimed = unclaimed
        self._metrics = metrics
        self._wake = wake
        self._began_s: dict[str, float] = {}
        self._watched: dict[str, str] = {}
        # Which may get their volume attached, and which may be reported as that: others see them.
        self._going: set[str] = set()
        self._may_be_reported: set[str] = set()
        self.calls: dict[str, Call] = {}

    def begin(self, attachment: Attachment) -> None:
        """Note when an attachment was first looked at."""
        self._began_s.setdefault(attachment.uid, clock.now_s())

    def restore(self, attachment: Attachment, call: Call | None) -> None:
        """A call was refused for certain, or not sent: what was known before still holds."""
        self.calls.pop(attachment.uid, None)
        if call is not None:
            self.calls[attachment.uid] = call

    def age_s(self, attachment: Attachment) -> float:
        """Seconds since it was first looked at, 0 if it never was or its object is gone."""
        began_s = self._began_s.get(attachment.uid)
        return clock.now_s() - began_s if began_s is not None else 0.0

    def view(self, attachment: Attachment, volume_id: str) -> View:
        """What is known now; a description from before the last call proves nothing about it."""
        call = self.calls.get(attachment.uid)
        sighting = self._watcher.sighting(volume_id)
        if sighting is not None and call is not None and sighting.at_s <= call.sent_at_s:
            sighting = None
        seen = sighting.found if sighting is not None else None
        missing = sighting is not None and seen is None
        return View(
            call=call,
            seen=seen,
            missing_for_s=sighting.missing_for_s if sighting is not None and missing else None,
            unclaimed=self._unclaimed.is_tagged(volume_id),
        )

    def checked(
        self,
        attachment: Attachment,
        target: Target,
        persistent_volume: PersistentVolume | None,
        step: AttachStep,
    ) -> AttachStep:
        """The step, or what is done instead: no two nodes may write to one file system.

        Nothing may be awaited between this and the step: of two at once the first one goes on.
        """
        inline = attachment.spec.source.inline_volume_spec
        spec = inline if persistent_volume is None else persistent_volume.spec
        let_through = isinstance(step, Attached) and attachment.uid in self._may_be_reported
        if not let_through and (spec is None or spec.is_file_system):
            step = sole_writer_rules.checked(
                step,
                target,
                view=self.view(attachment, target.volume_id),
                rivals=self._rivals(attachment, target),
                is_for_readers=spec is not None and spec.is_for_readers,
            )
        if isinstance(step, Attach):
            self._going.add(attachment.uid)
        if isinstance(step, Attached):
            self._may_be_reported.add(attachment.uid)
        return step

    def _rivals(self, attachment: Attachment, target: Target) -> list[Rival]:
        """The other attachments of its volume."""
        name, known = attachment.spec.source.persistent_volume_name, self._caches.attachments
        # What another controller has attached has no volume recorded.
        same = known.keyed("persistent_volume", name) if name else ()
        return [
            Rival(
                each.annotations.get(NODE_ID, ""),
                may_be_reported=each.attached or each.uid in self._may_be_reported,
                is_going=each.uid in self._going,
                # Not what another controller may report any moment.
                is_younger=VOLUME_ID in each.annotations and _age(attachment) < _age(each),
            )
            for each in (*known.keyed("volume", target.volume_id), *same)
            if each.uid != attachment.uid
        ]

    def watch(self, attachment: Attachment, volume_id: str, not_before_s: float = 0.0) -> None:
        """Have the attachment woken when EC2 describes its volume anew."""
        now = self._caches.attachments.get(attachment.name)
        if now is None or now.uid != attachment.uid:
            self.forget(attachment)  # removed by force meanwhile: nothing would end the watch
            return
        self._watched[attachment.uid] = volume_id
        self._watcher.watch(
            volume_id,
            f"attach {attachment.uid}",
            lambda: self._wake(attachment.name),
            not_before_s=not_before_s,
        )

    def trouble_with(self, volume_id: str) -> StorageError | None:
        """Why EC2 cannot be looked at for a volume."""
        return self._watcher.trouble_with(volume_id)

    def waits(
        self, attachment: Attachment, persistent_volume: PersistentVolume | None, view: View
    ) -> bool:
        """Whether an attached volume is to have all of its data first; it is woken then.

        Until then nobody looks at the volume itself: it can take hours.
        """
        waits = self._data.holds_back(
            attachment,
            persistent_volume,
            view,
            now_s=clock.now_s(),
            wake=lambda: self._wake(attachment.name),
        )
        if waits:
            self._unwatch(attachment)
        return waits

    def still_waits(self, attachment: Attachment) -> bool:
        """Whether its volume is attached, as far as is known, and lacks some of its data."""
        return self._data.is_waiting(attachment, clock.now_s())

    def finish(self, attachment: Attachment, flow: str, took_s: float) -> None:
        """A flow is done: count it, and forget."""
        self._metrics.flow_seconds.labels(flow).observe(took_s)
        self.forget(attachment)

    def forget(self, attachment: Attachment) -> None:
        """Nothing is to be remembered of it."""
        self._data.forget(attachment)
        self.let_others_go(attachment)
        self.calls.pop(attachment.uid, None)
        self._began_s.pop(attachment.uid, None)
        self._unwatch(attachment)

    def let_others_go(self, attachment: Attachment) -> None:
        """Nothing is asked of EC2 for it: another attachment of its volume may go first."""
        self._going.discard(attachment.uid)
        self._may_be_reported.discard(attachment.uid)

    def _unwatch(self, attachment: Attachment) -> None:
        volume_id = self._watched.pop(attachment.uid, None)
        if volume_id is not None:
            self._watcher.forget(volume_id, f"attach {attachment.uid}")


def _age(attachment: Attachment) -> tuple[float, str]:
    """By what of two attachments the older one comes first, the same on each look."""
    made = attachment.metadata.creation_timestamp
    return made.timestamp() if made is not None else 0.0, attachment.name
