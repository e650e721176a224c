"""Volumes on instances: look at an instance, choose a device name, attach, detach.

AttachVolume demands a name; on Nitro instances it is only a label (the guest sees NVMe devices in
any order), on Xen ones it is the device. Which names are good, and in which order they are given
away, follows aws-ebs-csi-driver v1.64 (127 names; without xvda and xvdc[a-z], which some Windows
instances cannot use). Source: EC2 user guide "Device names", read 2026-11-21.
"""

import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Any

from provisioner.ec2.batches import ask_about
from provisioner.ec2.calls import Ec2Calls, Gate
from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.limiter import Turn
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.ids import is_instance_id
from provisioner.model.volume import AttachmentState, Instance, InstanceAttachment

IDS_PER_CALL = 100
WINDOW_S = 0.05
# Zone and type never change and the device book knows what is on its way, so a thousand attaches
# need not look at the same hundred instances again and again.
FRESH_FOR_S = 2.0
# As long as aws-ebs-csi-driver remembers a name that it cannot explain.
BAD_FOR_S = 3600.0
_KEEP_S = 3600.0  # an instance that nothing happened on, and when a name was freed
_SHOWN_AFTER_S = 600.0  # DescribeInstances shows an attachment some seconds late
_TIDY_EVERY_S = 600.0
_LETTERS = ascii_lowercase
DEVICE_NAMES: tuple[str, ...] = (
    *(f"/dev/xvda{letter}" for letter in _LETTERS),
    *(f"/dev/xvdb{letter}" for letter in _LETTERS),
    *(f"/dev/xvdd{letter}" for letter in _LETTERS[:24]),
    *(f"/dev/xvd{letter}" for letter in _LETTERS[1:]),
    *(f"/dev/sd{letter}" for letter in _LETTERS[1:]),
    "/dev/sda2",
)
_ORDER = {name: place for place, name in enumerate(DEVICE_NAMES)}


@dataclass(slots=True)
class _Page:
    touched_at: float = 0.0
    by_volume: dict[str, str] = field(default_factory=dict)
    attached_at: dict[str, float] = field(default_factory=dict)  # of some of these volumes
    seen: frozenset[str] = frozenset()
    freed_at: dict[str, float] = field(default_factory=dict)
    bad_until: dict[str, float] = field(default_factory=dict)


class DeviceBook:
    """Which names of which instance are in use, on their way, or no good.

    DescribeInstances shows a new attachment late and AMI-mapped devices never; so names are kept
    here from before AttachVolume until the volume has been attached for ten minutes, and again from
    DetachVolume until it is detached. So the book does not grow with what is attached. Losing it (a
    restart) costs at most a refused attach: EC2 refuses a name in use, and the caller marks it and
    takes the next.
    Used on one event loop, by the one leader.
    """

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
        self._note_freed(page, frozenset(map(sys.intern, in_use)), now)
        mine = page.by_volume.get(volume_id) or next(
            (name for name, holder in in_use.items() if holder == volume_id), None
        )
        if mine is None:
            page.bad_until = {n: until for n, until in page.bad_until.items() if until > now}
            taken = {*in_use, *page.by_volume.values(), *page.bad_until}
            mine = choose_device_name(taken, page.freed_at)
        if mine is None:
            raise Ec2Error(
                Reason.INSTANCE_FULL,
                f"{instance_id} has no device name left for {volume_id}",
                action="AttachVolume",
            )
        page.by_volume[volume_id] = mine
        page.freed_at.pop(mine, None)  # or it would count when others free it
        page.attached_at.pop(volume_id, None)
        return mine

    def attached(self, instance_id: str, volume_id: str) -> None:
        """EC2 shows that the volume is attached: soon it shows its name to all who ask, too."""
        page = self._pages.get(instance_id)
        if page is not None and volume_id in page.by_volume:
            page.attached_at[volume_id] = self._clock()

    def leaving(self, instance_id: str, volume_id: str, name: str) -> None:
        """A volume that leaves is there under this name ("": unknown); see ``release``."""
        if name and volume_id:
            now = self._clock()
            page = self._pages.setdefault(instance_id, _Page())
            page.touched_at = page.attached_at[volume_id] = now
            page.by_volume.setdefault(volume_id, sys.intern(name))

    def release(self, instance_id: str, volume_id: str) -> None:
        """The volume is detached, or was never attached: its name is free, used last again."""
        page = self._pages.get(instance_id)
        name = page.by_volume.pop(volume_id, None) if page is not None else None
        if page is not None and name is not None:
            page.attached_at.pop(volume_id, None)
            page.freed_at[name] = page.touched_at = now = self._clock()
            self._tidy(now)

    def mark_bad(self, instance_id: str, name: str) -> None:
        """EC2 says that the name is in use though nobody shows it: not to be tried for an hour."""
        now = self._clock()
        page = self._pages.setdefault(instance_id, _Page())
        page.touched_at = now
        page.bad_until[name] = now + BAD_FOR_S
        page.by_volume = {v: held for v, held in page.by_volume.items() if held != name}
        page.attached_at = {v: at for v, at in page.attached_at.items() if v in page.by_volume}

    @staticmethod
    def _note_freed(page: _Page, in_use: frozenset[str], now: float) -> None:
        """Names that EC2 showed before and no longer shows were freed by others."""
        held = set(page.by_volume.values())
        for name in page.seen - in_use:
            if name not in held:
                page.freed_at.setdefault(name, now)
        page.seen = in_use

    def _tidy(self, now: float) -> None:
        """Forget what is long ago, or a node that lives for weeks has 127 names that were freed."""
        if now - self._tidied_at < _TIDY_EVERY_S:
            return
        self._tidied_at = now
        for page in self._pages.values():
            _forget_attached(page, now)
        self._pages = {
            instance_id: page
            for instance_id, page in self._pages.items()
            if page.by_volume or now - page.touched_at < _KEEP_S
        }
        for page in self._pages.values():
            if page.freed_at:
                page.freed_at = {n: at for n, at in page.freed_at.items() if now - at < _KEEP_S}
            if page.bad_until:
                page.bad_until = {n: until for n, until in page.bad_until.items() if until > now}


def _forget_attached(page: _Page, now: float) -> None:
    """Forget the names of volumes that have been attached for so long that EC2 tells them."""
    gone = {v for v, at in page.attached_at.items() if now - at >= _SHOWN_AFTER_S}
    if gone:
        page.by_volume = {v: name for v, name in page.by_volume.items() if v not in gone}
        page.attached_at = {v: at for v, at in page.attached_at.items() if v not in gone}


def choose_device_name(taken: Collection[str], freed_at_s: Mapping[str, float]) -> str | None:
    """The name for the next volume of an instance; None if all are taken.

    A name that was never used comes first, then the one freed longest ago: using a name again
    right after its volume was detached can leave the attachment stuck. A name that a Xen kernel
    could take for another one in use (sdf for xvdf) is the last resort.

    Args:
        taken: names in use, on their way, or known to be refused.
        freed_at_s: when names were freed, on any one clock.
    """
    suffixes = {_suffix(name) for name in taken}
    free = [name for name in DEVICE_NAMES if name not in taken]
    return min(
        free,
        key=lambda name: (
            _suffix(name) in suffixes,
            freed_at_s.get(name, float("-inf")),
            _ORDER[name],
        ),
        default=None,
    )


def _suffix(name: str) -> str:
    bare = name.removeprefix("/dev/")
    return bare.removeprefix("xvd") if bare.startswith("xvd") else bare.removeprefix("sd")


class Attachments:
    """What is attached where.

    Attributes:
        devices: the book of device names; the caller reserves before ``attach``.
    """

    def __init__(self, calls: Ec2Calls, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        self.devices = DeviceBook(clock=clock)
        self._instances = Coalescer[Instance](
            self._describe, window_s=WINDOW_S, fresh_for_s=FRESH_FOR_S, clock=clock
        )

    async def instance(self, instance_id: str) -> Instance:
        """An instance as EC2 shows it, at most two seconds old.

        Those who ask within 50 ms share one DescribeInstances.

        Raises:
            Ec2Error: INSTANCE_NOT_FOUND for an unknown id, for it alone; or EC2 could not be asked.
        """
        return await self._instances.get(instance_id)

    async def attach(
        self,
        volume_id: str,
        instance_id: str,
        *,
        device: str,
        gate: Gate | None = None,
        turn: Turn | None = None,
    ) -> InstanceAttachment:
        """Send one AttachVolume; the volume is usually ``attaching`` still.

        Args:
            volume_id: the volume.
            instance_id: the instance.
            device: the name under which it will be there.
            gate: the last look, right before the call is sent (see ``Ec2Calls.call``).
            turn: lets others end the wait for the limiter.

        Raises:
            Ec2Error: DEVICE_IN_USE (mark the name and take another), VOLUME_IN_USE,
                INSTANCE_FULL, …; ``outcome`` UNKNOWN if it may be under way.
        """
        params = {"VolumeId": volume_id, "InstanceId": instance_id, "Device": device}
        try:
            answer = await self._calls.call("AttachVolume", params, gate=gate, turn=turn)
        except Ec2Error:
            self._instances.forget(instance_id)  # what it rested on may be out of date
            raise
        return _attachment(answer, instance_id, device)

    async def detach(
        self, volume_id: str, instance_id: str, *, gate: Gate | None = None
    ) -> InstanceAttachment | None:
        """Send one DetachVolume, never by force.

        Args:
            volume_id: the volume.
            instance_id: the instance.
            gate: the last look, right before the call is sent (see ``Ec2Calls.call``).

        Returns:
            the attachment, usually ``detaching``; None if it is over already.

        Raises:
            Ec2Error: NOT_ATTACHED, VOLUME_NOT_FOUND, INSTANCE_NOT_FOUND (all three: nothing to
                detach); ``outcome`` UNKNOWN if it may be under way.
        """
        params = {"VolumeId": volume_id, "InstanceId": instance_id}
        answer = await self._calls.call("DetachVolume", params, gate=gate)
        attachment = _attachment(answer, instance_id, "")
        self.devices.leaving(instance_id, volume_id, attachment.device)
        return None if attachment.state is AttachmentState.DETACHED else attachment

    def release(self, instance_id: str, volume_id: str) -> None:
        """The volume is off the instance: its device name is free, and older views are wrong."""
        self.devices.release(instance_id, volume_id)
        self._instances.forget(instance_id)

    async def close(self) -> None:
        """Stop looking at instances."""
        await self._instances.close()

    async def _describe(self, instance_ids: list[str]) -> dict[str, Instance | Ec2Error]:
        found: dict[str, Instance | Ec2Error] = {each: _unknown(each) for each in instance_ids}

        async def ask(ids: list[str]) -> None:
            answer = await self._calls.call("DescribeInstances", {"InstanceIds": ids})
            found.update((instance.instance_id, instance) for instance in answer["Instances"])

        return found | await ask_about(filter(is_instance_id, instance_ids), IDS_PER_CALL, ask)


def _unknown(instance_id: str) -> Ec2Error:
    return Ec2Error(
        Reason.INSTANCE_NOT_FOUND,
        f"EC2 does not know instance {instance_id} in this account and Region",
        action="DescribeInstances",
    )


def _attachment(answer: dict[str, Any], instance_id: str, device: str) -> InstanceAttachment:
    try:
        state = AttachmentState(answer.get("State", ""))
    except ValueError:
        state = AttachmentState.BUSY  # one that this version does not know: wait
    return InstanceAttachment(
        instance_id=answer.get("InstanceId") or instance_id,
        device=answer.get("Device") or device,
        state=state,
    )
