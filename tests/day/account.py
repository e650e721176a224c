"""An AWS account in this process: the rules of the strict EC2, behind the real boto3 client.

A request is taken where boto3 would send it, and is answered by
``provisioner.sandbox.strict_ec2.actions``, which contract tests of its own hold to EC2. What is
moto's there is made leaner here: its instances, of which a large cluster has ten thousand.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from botocore import UNSIGNED
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from provisioner.ec2 import botocore_client
from provisioner.ec2.attachments import DEVICE_NAMES
from provisioner.model.names import PERSISTENT_VOLUME_NAME
from provisioner.model.volume import Volume
from provisioner.sandbox.strict_ec2 import describe, instance_listing, motos, records, render
from provisioner.sandbox.strict_ec2.actions import ACTIONS, carry_out
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from provisioner.sandbox.strict_ec2.errors import Ec2Error, throttled
from provisioner.sandbox.strict_ec2.listing import list_page
from provisioner.sandbox.strict_ec2.params import Params
from provisioner.sandbox.strict_ec2.patches import apply
from provisioner.sandbox.strict_ec2.throttle import parse
from provisioner.sandbox.strict_ec2.world import (
    REAL_DELAYS,
    REAL_LATENCY_S,
    Delays,
    Settings,
    World,
)
from tests.day import placing
from tests.day.clocks import NOW, DayLoop, wall_clock
from tests.day.oracle import Shown

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REGION = "us-east-1"
INVENTORY = " by tag"  # behind the action, in counts: page by page, beside the looks
_ENDPOINT = "http://ec2.day.invalid"
_VISIBLE_AFTER_S = 1.0  # readers know of a change so much later
_OK = 200


class DayWorld(World):
    """A world whose time is the day's."""

    def now_s(self) -> float:
        return NOW.s

    def moment(self) -> Any:
        return wall_clock()


@dataclass(eq=False)
class Instance:
    """As much of moto's as the rules look at."""

    id: str
    availability_zone: str
    state: str = "running"
    instance_type: str = "m5.large"
    root_device_name: str = "/dev/xvda"
    block_device_mapping: dict[str, Any] = field(default_factory=dict)
    nics: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Weather:
    """What a brown-out does to calls; shares of one."""

    slower: float = 1.0
    failing: float = 0.0  # 503 Unavailable: nothing was done
    losing: float = 0.0  # carried out, and the connection breaks before the answer
    hanging: float = 0.0  # carried out, and no answer until boto3 gives up
    quota: float = 1.0  # what others in the account leave of it


CALM = Weather()


class Account:
    """All volumes and instances, and the calls on them.

    Attributes:
        weather: how EC2 is.
        calls: that arrived, by action; ``throttled`` of them; ``failed``, by action and code.
        made: ids of all volumes that were ever made, by the persistent volume in their tags.
    """

    def __init__(self, seed: int) -> None:
        self.world = DayWorld(_settings, seed)
        apply(self.world)
        motos._ebs.utcnow = lambda: wall_clock().replace(tzinfo=None)
        self.backend: Any = motos.ec2_backends[motos.ACCOUNT][REGION]
        self.instances: dict[str, Instance] = {}
        self.backend.get_instance_by_id = self.instances.get
        self.backend.all_reservations = lambda: [
            SimpleNamespace(instances=list(self.instances.values()))
        ]
        self.weather = CALM
        self.calls: Counter[str] = Counter()
        self.throttled: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.made: dict[str, set[str]] = {}
        self._random = random.Random(seed)
        self._answers_late_s = 0.0

    # What the cluster's hands do ------------------------------------------------------------------

    def launch(self, instance_id: str, zone: str) -> None:
        """An instance starts."""
        self.instances[instance_id] = Instance(instance_id, zone)

    def terminate(self, instance_id: str) -> None:
        """An instance ends; EC2 detaches its volumes."""
        instance = self.instances.pop(instance_id)
        for block in list(instance.block_device_mapping.values()):
            volume = self.backend.volumes[block.volume_id]
            records.drop_attachment(records.record_of(volume).attachments[instance_id])

    def place(self, volume: Volume, number: int) -> None:
        """A volume is there before the day begins, attached as it says."""
        instances: Any = self.instances
        device = DEVICE_NAMES[number % len(DEVICE_NAMES)]
        placing.put_volume(self.backend, volume, instances, device)
        self.made[volume.tags[PERSISTENT_VOLUME_NAME]] = {volume.volume_id}

    def shown(self) -> dict[str, Shown]:
        """All volumes, for the oracle."""
        return placing.shown(self.backend)

    # Calls ----------------------------------------------------------------------------------------

    def client(self, is_cut: Callable[[], bool]) -> EC2Client:
        """A boto3 client of one process, whose calls come here instead of to a socket."""
        os.environ.update(CREDENTIALS)
        made = botocore_client.connect(region=REGION, endpoint=_ENDPOINT, at_once=1)

        def send(*, request: Any, **_: object) -> AWSResponse:
            # A process that is killed leaves some of its calls on their way.
            if is_cut() and self._random.random() < 0.5:
                raise ConnectionClosedError(endpoint_url=_ENDPOINT)
            return self._answered(dict(parse_qsl(_text(request.body), keep_blank_values=True)))

        events: Any = made.meta.events
        events.register("before-send.ec2", send)
        # A quarter of a call's CPU; nobody here looks at it.
        events.register("choose-signer.ec2", lambda **_: UNSIGNED)
        return made

    def serve(self, loop: DayLoop) -> None:
        """Have the calls of threads take as long as they do with AWS."""
        loop.latency = (self._half_way_s, self._back_s)

    def _half_way_s(self) -> float:
        return self._random.uniform(*REAL_LATENCY_S) / 2 * self.weather.slower

    def _back_s(self) -> float:
        late_s, self._answers_late_s = self._answers_late_s, 0.0
        return self._half_way_s() + late_s

    def _answered(self, flat: dict[str, str]) -> AWSResponse:
        action, weather = flat["Action"], self.weather
        by_tag = flat.get("Filter.1.Name", "").startswith("tag")
        self.calls[f"{action}{INVENTORY if by_tag else ''}"] += 1
        self.world.advance()
        if not self._admit(action, flat):
            self.throttled[action] += 1
            refusal = throttled()
            return _response(refusal.status, refusal.xml())
        fate = self._random.random()
        if fate < weather.failing:
            refusal = Ec2Error("Unavailable", "The service is temporarily unavailable.", 503)
            self.failed[f"{action} Unavailable"] += 1
            return _response(refusal.status, refusal.xml())
        status, text = self._carried_out(action, flat)
        fate -= weather.failing
        if fate < weather.losing:
            self.failed[f"{action} lost"] += 1
            raise ConnectionClosedError(endpoint_url=_ENDPOINT)
        if fate < weather.losing + weather.hanging:
            self.failed[f"{action} hung"] += 1
            self._answers_late_s = botocore_client.READ_TIMEOUT_S
            raise ReadTimeoutError(endpoint_url=_ENDPOINT)
        return _response(status, text)

    def _admit(self, action: str, flat: dict[str, str]) -> bool:
        """As the strict EC2's front does it."""
        filtered = any(key.startswith("Filter.") for key in flat) or "MaxResults" in flat
        return self.world.settings.throttle.admit(
            action,
            filtered=filtered or not action.startswith("Describe"),
            scope=REGION,
            now_s=NOW.s,
        )

    def _carried_out(self, action: str, flat: dict[str, str]) -> tuple[int, str]:
        if action == "DescribeInstances":
            status, text = self._described(flat)
        elif action == "DescribeVolumes" and flat.get("Filter.1.Name") == "volume-id":
            status, text = self._some_volumes(flat)
        elif action == "DescribeVolumes" and flat.get("NextToken") in self.world.pages:
            status, text = self._next_page(flat)
        else:
            assert action in ACTIONS, action
            status, text = carry_out(self.world, motos.ACCOUNT, REGION, action, flat)
        if status != _OK:
            code = text.partition("<Code>")[2].partition("</Code>")[0]
            self.failed[f"{action} {code}"] += 1
        elif action == "CreateVolume":
            self._note_made(text, flat)
        return status, text

    def _note_made(self, text: str, flat: dict[str, str]) -> None:
        volume_id = text.partition("<volumeId>")[2].partition("</volumeId>")[0]
        n = 1
        while flat[f"TagSpecification.1.Tag.{n}.Key"] != PERSISTENT_VOLUME_NAME:
            n += 1
        name = flat[f"TagSpecification.1.Tag.{n}.Value"]
        self.made.setdefault(name, set()).add(volume_id)

    def _some_volumes(self, flat: dict[str, str]) -> tuple[int, str]:
        """By the strict EC2's rules, which would look through all volumes for these few."""
        params = Params(flat)
        everything = self.backend.volumes
        named = (everything.get(each) for each in params.values("Filter.1.Value"))
        few = SimpleNamespace(volumes={each.id: each for each in named if each is not None})
        try:
            return _OK, describe.describe_volumes(Call(self.world, few, params))
        except Ec2Error as error:
            return error.status, error.xml()

    def _next_page(self, flat: dict[str, str]) -> tuple[int, str]:
        """By the same rules, which would look through all further pages for this one."""
        token, most = flat["NextToken"], int(flat["MaxResults"])
        keys = self.world.pages[token]
        self.world.keep_page(token, keys[:most])
        status, text = carry_out(self.world, motos.ACCOUNT, REGION, "DescribeVolumes", flat)
        if status == _OK and keys[most:]:
            more = f"{token.partition('.')[0]}.{len(keys)}"
            self.world.keep_page(more, keys[most:])
            end = "</DescribeVolumesResponse>"
            text = text.replace(end, f"<nextToken>{more}</nextToken>{end}")
        return status, text

    def _described(self, flat: dict[str, str]) -> tuple[int, str]:
        """What the wire needs of instances; ids and filters by the strict EC2's own rules."""
        call = Call(self.world, self.backend, Params(flat))
        try:
            page, more = list_page(call, instance_listing._INSTANCES)
        except Ec2Error as error:
            return error.status, error.xml()
        items = "".join(f"<item>{_instance(each)}</item>" for each in page)
        content = f"<reservationSet><item><instancesSet>{items}</instancesSet></item>"
        return _OK, render.reply("DescribeInstances", f"{content}</reservationSet>{more}")


def _settings() -> Settings:
    timed = {name: REAL_DELAYS[name] for name in ("create_s", "attach_s", "detach_s")}
    delays = Delays(visible_after_s=_VISIBLE_AFTER_S, delete_s=1.0, **timed)
    return Settings(delays=delays, throttle=parse("documented"))


def _text(body: Any) -> str:
    return body.decode() if isinstance(body, bytes) else str(body)


def _response(status: int, text: str) -> AWSResponse:
    response: Any = AWSResponse(_ENDPOINT, status, HTTPHeaders(), None)
    response._content = text.encode()
    made: AWSResponse = response
    return made


def _instance(each: Instance) -> str:
    devices = "".join(
        f"<item><deviceName>{device}</deviceName><ebs><volumeId>{block.volume_id}</volumeId>"
        f"</ebs></item>"
        for device, block in each.block_device_mapping.items()
    )
    return (
        f"<instanceId>{each.id}</instanceId><instanceState><name>{each.state}</name>"
        f"</instanceState><instanceType>{each.instance_type}</instanceType><placement>"
        f"<availabilityZone>{each.availability_zone}</availabilityZone></placement>"
        f"<blockDeviceMapping>{devices}</blockDeviceMapping>"
    )
