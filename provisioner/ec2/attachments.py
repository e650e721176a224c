"""Volumes on instances: look at an instance, attach, detach; each attach and detach one call."""

import time
from collections.abc import Callable
from typing import Any

from provisioner.ec2.batches import ask_about
from provisioner.ec2.calls import Ec2Calls, Gate
from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.devices import DeviceBook
from provisioner.ec2.limiter import Turn
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.ids import is_instance_id
from provisioner.model.volume import AttachmentState, Instance, InstanceAttachment

IDS_PER_CALL = 100
WINDOW_S = 0.05
# Zone and type never change and the device book knows what is on its way, so a thousand attaches
# need not look at the same hundred instances again and again.
FRESH_FOR_S = 2.0


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
        f"EC2 knows no instance {instance_id} in this account and Region",
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
