"""The strict EC2 and plain moto in this process, on a clock that skips all waiting.

Probes wait for EC2: seconds for an attachment, a day for the limit on modifications. Here the event
loop moves its clock on instead of waiting, and the strict EC2 reads the same clock. So a run is
repeatable and takes as long as its work.

Must not be used inside pytest's own process: moto is patched for good.
"""

import asyncio
import itertools
import selectors
import string
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlencode

import botocore.session
from aiohttp import web
from botocore import xform_name
from botocore.parsers import ResponseParserError, create_parser
from botocore.serialize import create_serializer
from werkzeug.test import EnvironBuilder, run_wsgi_app

from provisioner.conformance.lab import Lab, Place
from provisioner.conformance.probe import CannotRunError, Finding, NotRun, Probe, RefusedError
from provisioner.sandbox.strict_ec2 import control, motos, patches, records, shortcuts, throttle
from provisioner.sandbox.strict_ec2.front import Front
from provisioner.sandbox.strict_ec2.moto_door import MotoDoor
from provisioner.sandbox.strict_ec2.world import Settings, World
from tests.conformance.observation import Sent

T = TypeVar("T")

REGION: Final = "us-east-1"
ZONES: Final = ("us-east-1a", "us-east-1b", "us-east-1c")
INSTANCE_TYPE: Final = "m5.large"
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SEED: Final = 14
_FIRST_PAUSE_S: Final = 1.0
_HEADERS: Final = {
    "Authorization": (
        f"AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20260101/{REGION}/ec2/aws4_request, "
        "SignedHeaders=host, Signature=none"
    ),
    "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
}
_HOST: Final = "127.0.0.1:80"

Answer = Callable[[bytes], Awaitable[tuple[int, bytes]]]


class _Skipping(selectors.SelectSelector):
    """Never waits: what would have passed is added to the clock."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.skipped_s += timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while everybody waits."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped_s


class SkippingWorld(World):
    """The state of a strict EC2 that lives by the loop's clock."""

    def __init__(self, loop: SkippingLoop) -> None:
        self._loop = loop
        super().__init__(_as_real_as_published, _SEED)

    def now_s(self) -> float:
        return self._loop.time() + self.offset_s

    def moment(self) -> datetime:
        return _EPOCH + timedelta(seconds=self.now_s())


def _as_real_as_published() -> Settings:
    settings = Settings(throttle=throttle.parse("documented"))
    control.set_latency(settings, "real")
    # Snapshots of one volume are 15 s apart at least: several are pending at once only if they
    # take longer. Real ones of much data do.
    settings.delays.snapshot_s = 100.0
    settings.delays.delete_s = 2.0
    return settings


class StrictInProcess:
    """The strict EC2 with two instances, all of it: latency, quotas of calls, rules."""

    def __init__(self, loop: SkippingLoop) -> None:
        self.world = SkippingWorld(loop)
        patches.apply(self.world)
        shortcuts.apply()
        self._front = Front(self.world, MotoDoor())

    async def answer(self, body: bytes) -> tuple[int, bytes]:
        """Answer one call as the HTTP server does."""

        async def read() -> bytes:
            return body

        request = SimpleNamespace(
            path="/", query_string="", host=_HOST, method="POST", headers=_HEADERS, read=read
        )
        response = await self._front(cast("web.BaseRequest", request))
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        return response.status, response.body

    def clean(self) -> None:
        """Forget everything but the instances and their root volumes."""
        self.world.reset()
        backend = motos.ec2_backends[motos.ACCOUNT][REGION]
        backend.snapshots.clear()
        for name in ("strict_snapshots", "strict_public_snapshots"):
            backend.__dict__.pop(name, None)
        for volume in list(backend.volumes.values()):
            for attachment in list(records.record_of(volume).attachments.values()):
                if attachment.device != attachment.instance.root_device_name:
                    records.drop_attachment(attachment)
            if not records.record_of(volume).attachments:
                records.remove_volume(volume)
        # A broken rule may have left what no volume knows of.
        for instance in (i for r in backend.all_reservations() for i in r.instances):
            mapping = instance.block_device_mapping
            for device in [each for each in mapping if each != instance.root_device_name]:
                del mapping[device]
        for each in [each for each in backend.tags if each.startswith(("vol-", "snap-"))]:
            del backend.tags[each]


class PlainMoto:
    """moto as it is published. Nothing of it waits."""

    def __init__(self) -> None:
        server = motos.werkzeug_app
        self._app = server.DomainDispatcherApplication(server.create_backend_app)

    async def answer(self, body: bytes) -> tuple[int, bytes]:
        """Answer one call; what moto does not know is HTML, as from its server."""
        environ = EnvironBuilder(
            method="POST",
            path="/",
            base_url=f"http://{_HOST}/",
            headers=[*_HEADERS.items()],
            data=body,
        ).get_environ()
        try:
            chunks, status, _ = run_wsgi_app(self._app, environ, buffered=True)
        except Exception:
            return 500, b"<html><body><h1>500 Internal Server Error</h1></body></html>"
        return int(status.split()[0]), b"".join(chunks)

    def clean(self) -> None:
        """Forget nothing: probes look at what is theirs."""


@dataclass
class Notes:
    """A probe's diary, for an EC2 that is thrown away."""

    ids: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def making(self, kind: str, operation: str) -> int:
        del kind, operation
        return next(self._numbers)

    async def made(self, number: int, ids: Sequence[str]) -> None:
        del number
        self.ids.update(ids)

    def is_ours(self, each: str) -> bool:
        return each in self.ids


class Door:
    """A way to an EC2 in this process: botocore's wire format without HTTP.

    Attributes:
        sent: each call that was answered.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._model = botocore.session.get_session().get_service_model("ec2")
        self._serializer = create_serializer("ec2", include_validation=False)
        self._parser = create_parser("ec2")
        self._names = {xform_name(name): name for name in self._model.operation_names}
        self.sent: list[Sent] = []

    async def call(
        self, operation: str, params: Mapping[str, Any], *, again: bool
    ) -> dict[str, Any]:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                reply = await self._once(self._names[operation], params)
            except RefusedError as refused:
                self.sent.append(Sent(self._names[operation], params, None))
                if not again or refused.code != "RequestLimitExceeded":
                    raise
            else:
                self.sent.append(Sent(self._names[operation], params, reply))
                return reply
            await asyncio.sleep(pause_s)
            pause_s *= 2

    async def undisturbed(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def _once(self, action: str, params: Mapping[str, Any]) -> dict[str, Any]:
        described = self._model.operation_model(action)
        request = self._serializer.serialize_to_request(dict(params), described)
        status, body = await self._answer(urlencode(request["body"]).encode())
        response = {"body": body, "headers": {}, "status_code": status}
        try:
            parsed: dict[str, Any] = self._parser.parse(
                response, cast("Any", described.output_shape)
            )
        except ResponseParserError as error:
            raise CannotRunError(f"the reply to {action} cannot be read") from error
        if status < 400:
            return parsed
        refusal = parsed.get("Error", {})
        code, text = refusal.get("Code", ""), refusal.get("Message") or ""
        if code in ("", "InternalError", "InvalidAction"):
            raise CannotRunError(f"the endpoint has no {action}: {text}")
        raise RefusedError(code, text)


async def place_of(door: Door) -> Place:
    """Start two instances in one zone."""
    found = [
        (
            await door.call(
                "run_instances",
                {
                    "ImageId": "ami-00000000000000000",
                    "InstanceType": INSTANCE_TYPE,
                    "MinCount": 1,
                    "MaxCount": 1,
                    "Placement": {"AvailabilityZone": ZONES[0]},
                },
                again=True,
            )
        )["Instances"][0]["InstanceId"]
        for _ in range(2)
    ]
    return Place("run-1", REGION, ZONES[0], ZONES, found[0], INSTANCE_TYPE, found[1])


async def find(probe: Probe, place: Place, door: Door) -> Finding:
    """Run one probe; what it does not say itself is not known."""
    letters = string.ascii_lowercase
    names = (
        f"/dev/{each}"
        for each in (*(f"sd{x}" for x in letters[5:]), *(f"xvdb{x}" for x in letters))
    )
    lab = Lab(place, door, Notes(), lambda: next(names))
    try:
        return await asyncio.wait_for(probe.run(lab), probe.deadline_s)
    except CannotRunError as reason:
        return NotRun(str(reason))
    except RefusedError as refused:
        return NotRun(f"what it prepares was refused: {refused}")
    except TimeoutError:
        return NotRun(f"it did not end within {probe.deadline_s:.0f} s")
