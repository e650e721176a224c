"""Claims of devices, and which of them a disk that hangs has not given back.

Where a disk does not answer, a thread that works on it stays, and with it the claim. The next try
is told just that, without another thread for the same disk.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from provisioner.model.errors import NodeError, Reason
from provisioner.node.claimed import ClaimedDevice, unreadable
from provisioner.node.device_thread import LINGER_S, NotStartedError, in_thread
from provisioner.node.devices import Device

T = TypeVar("T")


class Claims:
    """Claims devices, each once at a time.

    Args:
        linger_s: how long a wait that is cancelled still lasts, in seconds.
    """

    def __init__(self, *, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        # Changed by the threads too; each change is one step of the interpreter.
        self._since_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._since_s)

    async def claim(self, device: Device) -> ClaimedDevice:
        """Have a device for us alone, until it is closed.

        Raises:
            NodeError: DEVICE_BUSY, DEVICE_NOT_FOUND, WRONG_DEVICE; TIMED_OUT, the disk hangs;
                PROGRAM_MISSING, no thread can be started.
        """
        let_go = self._begin(device)
        try:
            claimed = await in_thread(
                lambda: _open(device, let_go),
                undo=lambda unwanted: unwanted.close(),
                linger_s=self._linger_s,
            )
        except NotStartedError:
            let_go()
            raise
        if claimed.number != device.number:
            claimed.close()
            raise NodeError(
                Reason.WRONG_DEVICE,
                f"{device.path} of volume {device.volume_id} is another device by now; it is tried "
                "again",
            )
        return claimed

    async def look(self, device: Device, work: Callable[[], T]) -> T:
        """Look at a device that may be in use, without a claim.

        Raises:
            NodeError: DEVICE_NOT_FOUND, it fails; TIMED_OUT, the disk hangs; PROGRAM_MISSING, no
                thread can be started.
        """
        let_go = self._begin(device)

        def looked() -> T:
            try:
                return work()
            finally:
                let_go()

        try:
            return await in_thread(looked, linger_s=self._linger_s)
        except NotStartedError:
            let_go()
            raise
        except OSError as error:
            raise unreadable(device.path, error) from error

    def _begin(self, device: Device) -> Callable[[], None]:
        now_s = time.monotonic()
        if (since_s := self._since_s.get(device.number)) is not None:
            raise NodeError(
                Reason.TIMED_OUT,
                f"a look at {device.path} of volume {device.volume_id} has not come back for "
                f"{now_s - since_s:.0f} s: the disk may have died; look at the node's kernel log "
                "and at the volume's status in EC2",
            )
        self._since_s[device.number] = now_s
        return partial(self._end, device.number)

    def _end(self, number: str) -> None:
        self._since_s.pop(number, None)


def _open(device: Device, let_go: Callable[[], None]) -> ClaimedDevice:
    try:
        return ClaimedDevice.open(device.path, let_go)
    except BaseException:
        let_go()
        raise
