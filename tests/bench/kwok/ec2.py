"""``python -m tests.bench.kwok.ec2``: the strict EC2, with a door for the bench beside its own.

``POST /_bench`` puts standing volumes into it; ``GET /_bench`` tells what there is, past the calls
of EC2, their quotas and their delays. ``GET /_bench/inventories`` tells only their number.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from provisioner.ec2.attachments import DEVICE_NAMES
from provisioner.model.names import PERSISTENT_VOLUME_NAME
from provisioner.sandbox.strict_ec2 import __main__ as strict
from provisioner.sandbox.strict_ec2 import actions, motos
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.client import ask
from provisioner.sandbox.strict_ec2.front import Front
from provisioner.sandbox.strict_ec2.world import World
from tests.bench.kwok.standing_pods import Populated
from tests.day import placing

REGION: Final = "us-east-1"
_DOOR: Final = "/_bench"
_INVENTORIES: Final = "/_bench/inventories"
_ID: Final = ("<volumeId>", "</volumeId>")


class Wanted(msgspec.Struct):
    """The standing volumes: how many, of which cluster; the instances by their number."""

    volumes: int
    attachments: int
    cluster_id: str
    instances: Sequence[str]


class There(msgspec.Struct):
    """What EC2 has.

    Attributes:
        made: the ids of all volumes that were ever made, by their persistent volume.
        volumes: by id, whether it is on its way out, and to what it is attached; without those that
            instances were born with.
    """

    made: dict[str, set[str]]
    volumes: dict[str, tuple[bool, tuple[str, ...]]]


class Door:
    """Answers in the front's place what is for the bench."""

    def __init__(self, world: World, front: Front) -> None:
        self._world, self._front = world, front
        self._made: dict[str, set[str]] = {}
        self._inventories = 0
        known: Any = actions.ACTIONS
        self._create = known["CreateVolume"]
        known["CreateVolume"] = self._note

    @property
    def _backend(self) -> Any:
        return motos.ec2_backends[motos.ACCOUNT][REGION]

    def _note(self, call: Call) -> str:
        """A lost reply is noted as well: its volume is made."""
        text: str = self._create(call)
        volume_id = text.partition(_ID[0])[2].partition(_ID[1])[0]
        name = call.backend.tags[volume_id].get(PERSISTENT_VOLUME_NAME, "")
        self._made.setdefault(name, set()).add(volume_id)
        return text

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        body = await request.read()
        if request.path == _INVENTORIES:
            return web.Response(text=f"{self._inventories}")
        if request.path != _DOOR:
            is_look = b"Action=DescribeVolumes&" in body
            self._inventories += is_look and b"Filter.1.Name=tag" in body
            return await self._front(request)
        if request.method == "POST":
            self._put(msgspec.json.decode(body, type=Wanted))
        self._world.advance()
        return web.Response(body=msgspec.json.encode(self._there()))

    def _put(self, wanted: Wanted) -> None:
        there = Populated(wanted.volumes, wanted.attachments, wanted.instances)
        instances = self._instances()
        for n in range(wanted.volumes):
            volume = there.volume(n, wanted.cluster_id)
            device = DEVICE_NAMES[n // there.nodes % len(DEVICE_NAMES)]
            placing.put_volume(self._backend, volume, instances, device)
            self._made[volume.tags[PERSISTENT_VOLUME_NAME]] = {volume.volume_id}

    def _instances(self) -> Mapping[str, Any]:
        reservations = self._backend.all_reservations()
        return {each.id: each for some in reservations for each in some.instances}

    def _there(self) -> There:
        backend = self._backend
        shown = {
            volume_id: (each.is_going, each.attached_to)
            for volume_id, each in placing.shown(backend).items()
            if PERSISTENT_VOLUME_NAME in backend.tags.get(volume_id, {})
        }
        return There(self._made, shown)


def put(endpoint: str, wanted: Wanted) -> There:
    """Have the standing volumes put there."""
    return _asked(endpoint, msgspec.json.encode(wanted))


def there(endpoint: str) -> There:
    """What EC2 has now."""
    return _asked(endpoint, None)


def inventories(endpoint: str) -> int:
    """DescribeVolumes by tag so far, page by page: they are no looks at what is under way."""
    _, reply = ask(endpoint, _INVENTORIES)
    return int(reply)


def _asked(endpoint: str, body: bytes | None) -> There:
    _, reply = ask(endpoint, _DOOR, body)
    return msgspec.json.decode(reply, type=There)


if __name__ == "__main__":
    strict.main(Door)
