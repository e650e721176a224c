"""A controller that dies, pauses, or loses a reply, at one numbered request; and its nursery.

``python -m tests.cluster.mortal`` imports the product and makes its boto3 client once, and then
forks a child for each order on its standard input, so that a life costs a fork and neither of the
two. A child is the product's own ``Controller`` on a real wire. Only its two outermost edges are
ours: they write down each request that changes something, and at the request of the order they end
the process (``os._exit``: no clean-up runs, as with SIGKILL), lose the reply, or stand still with
all that was read before it, until SIGCONT.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiohttp

from provisioner import logs
from provisioner.controller.app import Controller
from provisioner.controller.shared.settings import Settings
from provisioner.ec2 import botocore_client
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.limiter import Limiter
from provisioner.kube import failures
from provisioner.kube.client import KubeClient, Transport
from provisioner.kube.credentials import Credentials
from provisioner.kube.failures import Attempt
from provisioner.metrics import Metrics
from provisioner.model import tags
from provisioner.model.errors import KubeError, Outcome
from provisioner.sandbox.strict_ec2.client import ask

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

# How long a controller looks before it believes that EC2 has not done what it was asked: a minute
# for the real one. This one shows everything after ``walk_world.DELAYS``, and stories are many.
BELIEVES_AFTER_S = 12.0
_BELIEFS = frozenset({"CONSISTENCY_S", "GIVE_UP_AFTER_S"})
BEFORE, AFTER, LOST = "dies before the send", "dies before the reply", "loses the reply"
PAUSES = "pauses before the send"
_EC2_READS = ("Describe", "Get", "List")
_NAMES = ("ClientToken", "VolumeId", "SnapshotId", "SourceVolumeId")
_LISTS = {"Resources": "ResourceId", "SourceSnapshotIds": "SourceSnapshotId"}  # as on the wire
_KUBE_CHANGES = frozenset({"POST", "PATCH", "PUT", "DELETE"})
_PDEATHSIG = 1
_DEAD = 137
_AT_ONCE = 8  # calls to EC2, of each life
# Lives are many, and would leave the tests of other processes a twentieth of the machine.
_YIELDS = 5


@dataclass(frozen=True, slots=True)
class Order:
    """One life. ``at``: the label of the request at which ``fate`` comes, "" for a long life.

    ``freezes``: the kinds (plurals) whose watch stands still between SIGUSR1 and SIGUSR2;
    ``options``: other settings, extra tags as text.
    """

    kubeconfig: str
    driver: str
    cluster_id: str
    records: str
    log: str
    ec2: str
    at: str = ""
    fate: str = ""
    freezes: tuple[str, ...] = ()
    sweep_s: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """Names each request by what it is and the how-manieth of its like; acts at the ordered one."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._has_paused = False
        self._file = os.open(order.records, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def begin(self, what: str) -> str:
        """Write down that a request is about to leave; the fate that awaits it."""
        with self._lock:
            self._seen[what] += 1
            label = f"{what} #{self._seen[what]}"
        fate = self._order.fate if label == self._order.at else ""
        self.write(label=label, fate=fate)
        if fate == BEFORE:
            os._exit(_DEAD)
        if fate == PAUSES and not self._has_paused:  # once, though it may be refused and come again
            self._has_paused = True
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # all stop, this one at once
        return fate

    def take_back(self, what: str) -> None:
        """A request was refused and has changed nothing; the next of its like gets its number.

        Most have lost a race, and who is faster differs from life to life.
        """
        with self._lock:
            self.write(taken_back=f"{what} #{self._seen[what]}")
            self._seen[what] -= 1

    def write(self, **record: Any) -> None:
        """Add a line that survives our death."""
        os.write(self._file, json.dumps(record).encode() + b"\n")


class MortalTransport(Transport):
    """The product's transport with the recorder around it."""

    def __init__(self, credentials: Credentials, recorder: Recorder, order: Order) -> None:
        super().__init__(credentials)
        self._recorder = recorder
        self._frozen_kinds = order.freezes
        self._flowing = asyncio.Event()
        self._flowing.set()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._freeze)
        loop.add_signal_handler(signal.SIGUSR2, self._flowing.set)

    def _freeze(self) -> None:
        self._flowing.clear()
        self._recorder.write(frozen=True)

    async def send(self, attempt: Attempt, method: str, path: str, **options: Any) -> bytes:
        """One request, if we live to send it."""
        kind = attempt.target.partition(" ")[0]
        is_dry = "dryRun" in (options.get("query") or {})
        # Events are sent beside the work, when there is time, and nothing is ever read from them.
        if method not in _KUBE_CHANGES or kind == "events" or is_dry:
            return await super().send(attempt, method, path, **options)
        what = f"{method} {kind}"
        fate = self._recorder.begin(what)
        try:
            data = await super().send(attempt, method, path, **options)
        except KubeError as error:
            if error.outcome is Outcome.NOTHING:
                self._recorder.take_back(what)
            raise
        if fate == AFTER:
            os._exit(_DEAD)
        if fate == LOST:
            raise failures.of_exception(attempt, aiohttp.ServerDisconnectedError())
        return data

    async def lines(
        self, attempt: Attempt, path: str, query: Mapping[str, str]
    ) -> AsyncGenerator[bytes]:
        """A watch, which stands still while its kind is frozen."""
        frozen = attempt.target.partition(" ")[0] in self._frozen_kinds
        async with aclosing(super().lines(attempt, path, query)) as lines:
            async for line in lines:
                if frozen:
                    await self._flowing.wait()
                yield line


class MortalEc2:
    """The product's boto3 client with the recorder around it; called from threads."""

    def __init__(self, client: EC2Client, recorder: Recorder, endpoint: str) -> None:
        self._client = client
        self._recorder = recorder
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._client, name)
        action = self._client.meta.method_to_api_mapping.get(name)
        if action is None or action.startswith(_EC2_READS):
            return call
        return lambda **params: self._change(action, call, params)

    def _change(self, action: str, call: Callable[..., Any], params: dict[str, Any]) -> Any:
        fate = self._recorder.begin(action)
        if fate == LOST:
            self._have_the_reply_lost(action, params)
        try:
            return call(**params)
        finally:  # a refusal is a reply, too
            if fate == AFTER:
                os._exit(_DEAD)

    def _have_the_reply_lost(self, action: str, params: dict[str, Any]) -> None:
        """Have EC2 carry out this very call and then reset the connection."""
        about = {name: params.get(name) for name in _NAMES} | {
            wire_name: next(iter(params.get(name, ())), None) for name, wire_name in _LISTS.items()
        }
        match = {key: value for key, value in about.items() if value}
        assert match, f"nothing tells this {action} from others: {params}"
        fault = {"action": action, "when": "after", "do": "reset", "match": match}
        ask(self._endpoint, "/_control", json.dumps({"faults": [fault]}).encode())


async def live(order: Order, client: EC2Client) -> None:
    """One life of the controller; ``client`` has no connection yet."""
    recorder = Recorder(order)
    options = dict(order.options)
    settings = Settings(
        kubeconfig=order.kubeconfig,
        driver=order.driver,
        cluster_id=order.cluster_id,
        leader_elect=False,
        orphan_sweep_interval_s=order.sweep_s,
        orphan_min_age_s=1.0,
        extra_tags=tuple(map(tags.parse, options.pop("extra_tags", ()))),
        **options,
    )
    credentials = Credentials(order.kubeconfig, None)
    await credentials.load()
    metrics = Metrics()
    edge = cast("EC2Client", MortalEc2(client, recorder, order.ec2))
    limiter = Limiter(at_once=_AT_ONCE, metrics=metrics)
    calls = Ec2Calls(edge, limiter=limiter, metrics=metrics, at_once=_AT_ONCE)
    async with KubeClient(MortalTransport(credentials, recorder, order)) as kube:
        controller = Controller(settings, kube, kube, calls, metrics)
        running = asyncio.create_task(controller.run(asyncio.Event()))
        leading = asyncio.create_task(controller.leading.wait())
        await asyncio.wait({running, leading}, return_when=asyncio.FIRST_COMPLETED)
        recorder.write(leads=os.getpid())
        await running


def _bear(order: Order, client: EC2Client) -> int:
    """Fork a child that lives by the order; its process id."""
    ours = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != ours:
            os._exit(_DEAD)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(order.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        logs.configure("json", "info")
        asyncio.run(live(order, client))
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
    finally:
        sys.stderr.flush()
        os._exit(1)


def _hasten() -> None:
    found: set[str] = set()
    for name, module in sys.modules.items():
        if name.startswith("provisioner."):
            known = _BELIEFS & vars(module).keys()
            vars(module).update(dict.fromkeys(known, BELIEVES_AFTER_S))
            found |= known
    assert found == _BELIEFS, f"stories would take minutes: there is no {_BELIEFS - found} any more"


def serve() -> None:
    """Bear a child for each line of standard input; answer with its process id."""
    _hasten()
    client = botocore_client.connect(region=None, endpoint=None, at_once=_AT_ONCE)
    gc.freeze()  # as the product does at its start; no child's collections look at what we have
    os.nice(_YIELDS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: no zombies
    for line in sys.stdin:
        document = json.loads(line)
        document["freezes"] = tuple(document["freezes"])
        sys.stdout.write(f"{_bear(Order(**document), client)}\n")
        sys.stdout.flush()


def records_of(path: Path) -> list[dict[str, Any]]:
    """What a child has written down so far, whole lines only."""
    text = path.read_text() if path.exists() else ""
    whole = itertools.takewhile(lambda line: line.endswith("\n"), text.splitlines(keepends=True))
    return [json.loads(line) for line in whole]


def encode(order: Order) -> bytes:
    """The order as the nursery reads it."""
    return json.dumps(asdict(order)).encode() + b"\n"


if __name__ == "__main__":
    serve()
