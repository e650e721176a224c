"""What the controller needs of its parts to run them."""

from typing import Protocol

from provisioner.kube.queue import KeyedQueue


class Flow(Protocol):
    """Objects of one kind, looked at by key."""

    queue: KeyedQueue

    def subscribe(self) -> None:
        """Have objects looked at from now on."""


class Lasting(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None:
        """Work for ever."""
