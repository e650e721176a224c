"""What this process knows of the snapshot of each content, by the content's UID.

What a process before it knew is in the content's annotation, and in EC2's tags.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from provisioner import clock
from provisioner.controller.snapshotting import content_rules
from provisioner.controller.snapshotting.content_rules import Attempt
from provisioner.model.decision import Next
from provisioner.model.leadership import Epoch
from provisioner.model.volume_snapshot import VolumeSnapshot, VolumeSnapshotContent

# The content as last written, to continue with; or when its next pass is.
Going = VolumeSnapshotContent | Next


class Attempts:
    """One ``Attempt`` for each content, made when it is first asked for.

    ``owner_of``: the VolumeSnapshot of the name that a content names, as far as is known.
    ``now``: the wall clock.
    """

    def __init__(
        self,
        owner_of: Callable[[VolumeSnapshotContent], VolumeSnapshot | None],
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._owner_of = owner_of
        self._now = now
        self._known: dict[str, Attempt] = {}
        # Contents whose snapshot another controller may have taken.
        self._in_doubt: set[str] = set()
        self._epoch: Epoch | None = None
        self._others_ended_at_s = 0.0

    def __len__(self) -> int:
        return len(self._known)

    def take_over(
        self, epoch: Epoch | None, contents: Iterable[VolumeSnapshotContent], now: datetime
    ) -> None:
        """Note what another controller may have started; None: nothing is proven of who led.

        Also for contents that are not here yet: their CRDs may be served, or listed, later.
        """
        lasted_s = 0.0 if epoch is None else epoch.lasted_s(now)
        self._others_ended_at_s = clock.now_s() - lasted_s
        self._epoch = epoch or Epoch.after([now], ())
        for content in contents:
            created_at = content.metadata.creation_timestamp
            if not content.snapshot_id and (epoch is None or epoch.may_predate(created_at)):
                self._in_doubt.add(content.uid)

    def of(self, content: VolumeSnapshotContent) -> Attempt:
        """What is known of its snapshot."""
        known = self._known.get(content.uid)
        if known is None:
            ended_at_s = self._others_ended_at_s if self._is_in_doubt(content) else None
            owner = self._owner_of(content)
            if ended_at_s is None and content_rules.may_be_second(content, owner):
                # Mostly long ago, so that EC2 shows it: then one look-up decides.
                ended_at_s = clock.now_s() - content_rules.taken_for_s(owner, self._now())
            known = content_rules.begin(content, others_ended_at_s=ended_at_s, now_s=clock.now_s())
            self._known[content.uid] = known
        return known

    def keep(self, content: VolumeSnapshotContent, attempt: Attempt) -> None:
        """Remember what is known now."""
        self._known[content.uid] = attempt

    def forget(self, uid: str) -> None:
        """Nothing is left to be done for it."""
        self._known.pop(uid, None)
        self._in_doubt.discard(uid)

    def _is_in_doubt(self, content: VolumeSnapshotContent) -> bool:
        """Whether another controller may have taken its snapshot."""
        if content.uid in self._in_doubt:
            return True
        created_at, epoch = content.metadata.creation_timestamp, self._epoch
        return not content.snapshot_id and epoch is not None and epoch.may_predate(created_at)
