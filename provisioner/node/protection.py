"""Devices that take no writes while they are mounted to be read: not the kernel's own either.

Even with "ro,noload" the kernel's ext4 frees what was deleted while open, and notes errors.
"""

from functools import partial
from pathlib import Path

import structlog

from provisioner.model.errors import NodeError
from provisioner.node.claimed import set_read_only, unreadable
from provisioner.node.patience import Patience

log = structlog.get_logger(__name__)


class Protection:
    """Begins and ends it.

    Args:
        patience: calls what may hang.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    async def turn(self, device_path: Path, number: str, *, is_on: bool) -> bool:
        """Have a device refuse all writes, or no more; it may be in use.

        Args:
            device_path: the device.
            number: "major:minor" of it.
            is_on: whether writes are refused.

        Returns:
            Whether they were before.

        Raises:
            NodeError: DEVICE_NOT_FOUND; TIMED_OUT.
        """
        change = partial(set_read_only, device_path, number, is_on=is_on)
        try:
            return await self._patience.call(
                f"protection of {number}", change, what=f"protecting {device_path} from writes"
            )
        except OSError as error:
            raise unreadable(device_path, error) from error

    async def turn_if_there(self, device_path: Path, number: str, *, is_on: bool) -> bool:
        """``turn``, where a disk that has gone is no failure: it then was not protected."""
        try:
            return await self.turn(device_path, number, is_on=is_on)
        except NodeError as error:
            state = "may take writes" if is_on else "may still refuse writes"
            log.warning(state, device=str(device_path), why=error.message)
            return False
