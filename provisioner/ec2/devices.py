"""The device book: which names of which instance are in use, on their way, or no good.

DescribeInstances shows a new attachment late and AMI-mapped devices never; so names are kept here
from before AttachVolume until the volume is detached. Losing the book (a restart) costs at most a
refused attach: EC2 refuses a name in use, and the caller marks it and takes the next.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from provisioner.model import device
from provisioner.model.errors import Ec2Error, Reason

# As long as aws-ebs-csi-driver remembers a name that it cannot explain.
BAD_FOR_S = 3600.0
_KEEP_S = 3600.0  # an instance that nothing happened on
_TIDY_EVERY_S = 600.0


@dataclass(slots=True)
class _Page:
    touched_at: float = 0.0
    by_volume: dict[str, str] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    freed_at: dict[str, float] = field(default_factory=dict)
    bad_until: dict[str, float] = field(default_factory=dict)


class DeviceBook:
    """Names of all instances; used on one event loop, by the one leader."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pages: dict[str, _Page] = {}
        self._tidied_at = clock()

    def reserve(self, instance_id: str, volume_id: str, in_use: Mapping[str, str]) -> str:
        """A name for a volume on an instance; the same volume gets the same name again.

        Args:
            instance_id: the instance.
            volume_id: the volume.
            in_use: device name -> volume id, as DescribeInstances shows them.

        Raises:
            Ec2Error: (INSTANCE_FULL) all 127 names are taken.
        """
        now = self._clock()
        self._tidy(now)
        page = self._pages.setdefault(instance_id, _Page())
        page.touched_at = now
        self._note_freed(page, frozenset(in_use), now)
        mine = page.by_volume.get(volume_id) or next(
            (name for name, holder in in_use.items() if holder == volume_id), None
        )
        if mine is None:
            page.bad_until = {n: until for n, until in page.bad_until.items() if until > now}
            taken = {*in_use, *page.by_volume.values(), *page.bad_until}
            mine = device.choose(taken, page.freed_at)
        if mine is None:
            raise Ec2Error(
                Reason.INSTANCE_FULL,
                f"{instance_id} has no device name left for {volume_id}",
                action="AttachVolume",
            )
        page.by_volume[volume_id] = mine
        return mine

    def release(self, instance_id: str, volume_id: str) -> None:
        """The volume is detached, or was never attached: its name is free, used last again."""
        page = self._pages.get(instance_id)
        name = page.by_volume.pop(volume_id, None) if page is not None else None
        if page is not None and name is not None:
            page.freed_at[name] = page.touched_at = self._clock()

    def mark_bad(self, instance_id: str, name: str) -> None:
        """EC2 says that the name is in use though nobody shows it: not to be tried for an hour."""
        now = self._clock()
        page = self._pages.setdefault(instance_id, _Page())
        page.touched_at = now
        page.bad_until[name] = now + BAD_FOR_S
        page.by_volume = {v: held for v, held in page.by_volume.items() if held != name}

    @staticmethod
    def _note_freed(page: _Page, in_use: frozenset[str], now: float) -> None:
        """Names that EC2 showed before and shows no longer were freed by somebody else."""
        held = set(page.by_volume.values())
        for name in page.seen - in_use:
            if name not in held:
                page.freed_at.setdefault(name, now)
        page.seen = in_use

    def _tidy(self, now: float) -> None:
        if now - self._tidied_at < _TIDY_EVERY_S:
            return
        self._tidied_at = now
        self._pages = {
            instance_id: page
            for instance_id, page in self._pages.items()
            if page.by_volume or now - page.touched_at < _KEEP_S
        }
