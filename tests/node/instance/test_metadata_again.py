"""The metadata service is asked again by itself while only the Node says which instance this is."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.node import NodeSpec
from provisioner.node.instance import metadata
from provisioner.node.instance.documents import NodeView
from provisioner.node.instance.kube import NodeKube
from provisioner.node.instance.metadata import Metadata
from provisioner.node.runtime.sysfs import SystemDirs

pytestmark = pytest.mark.usefixtures("no_leaked_tasks")

NODES = "i-0aaaaaaaaaaaaaaa1"
OWN = "i-0bbbbbbbbbbbbbbb2"
DOCUMENT = f'{{"instanceId":"{OWN}","instanceType":"m4.large","availabilityZone":"us-east-1a"}}'
MOST_S = 10.0


class Clock:
    """Goes on only while somebody sleeps; ``ends_s`` ends who sleeps until then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.ends_s = float("inf")
        self.sleeps_s: list[float] = []
        monkeypatch.setattr(metadata, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        own = SimpleNamespace(**{**vars(asyncio), "sleep": self.sleep})
        monkeypatch.setattr(metadata, "asyncio", own)

    async def sleep(self, delay_s: float) -> None:
        self.sleeps_s.append(delay_s)
        self.now_s += delay_s
        await asyncio.sleep(0)
        if self.now_s > self.ends_s:
            raise asyncio.CancelledError


class Service:
    """The metadata service; silent until ``answers_s``."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.answers_s = float("inf")
        self.asked_s: list[float] = []

    async def get(self, path: str) -> str | None:
        if "document" not in path:
            return None
        self.asked_s.append(self.clock.now_s)
        if self.clock.now_s < self.answers_s:
            raise NodeError(Reason.METADATA_UNAVAILABLE, "no answer")
        return DOCUMENT


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def service(clock):
    return Service(clock)


@pytest.fixture
def others():
    return []


class Kube:
    """Has the Node."""

    node_name = "node-1"

    async def node(self) -> NodeView:
        labels = {
            "node.kubernetes.io/instance-type": "m4.large",
            "topology.kubernetes.io/zone": "us-east-1a",
        }
        spec = NodeSpec(provider_id=f"aws:///us-east-1a/{NODES}")
        return NodeView(metadata=ObjectMeta(labels=labels), spec=spec)


@pytest.fixture
def taken_for_another(service, others, tmp_path):
    """A machine under the Node of another one."""
    return Metadata(
        service,
        cast("NodeKube", Kube()),
        SystemDirs(sys=tmp_path),
        on_other=lambda: others.append(1),
    )


async def kept(found: Metadata) -> None:
    async with asyncio.timeout(MOST_S):
        await found.keep()


async def test_nobody_has_to_ask_for_it(taken_for_another, service, clock, others):
    service.answers_s = clock.now_s + 200
    assert (await taken_for_another.identity()).instance_id == NODES
    assert await taken_for_another.instance_id() == NODES

    await kept(taken_for_another)

    assert others == [1]
    assert await taken_for_another.instance_id() == OWN
    assert service.asked_s == [1000.0, 1060.0, 1120.0, 1180.0, 1240.0]


async def test_it_is_asked_once_a_minute_and_not_more(taken_for_another, service, clock, others):
    await taken_for_another.identity()
    clock.ends_s = clock.now_s + 3600

    with pytest.raises(asyncio.CancelledError):
        await kept(taken_for_another)

    assert len(service.asked_s) == 60 + 1
    assert len(clock.sleeps_s) == 60 + 1
    assert others == []


async def test_before_kubelet_has_asked_it_is_waited_for(taken_for_another, service, clock):
    clock.ends_s = clock.now_s + 60

    with pytest.raises(asyncio.CancelledError):
        await kept(taken_for_another)

    assert service.asked_s == []
    assert min(clock.sleeps_s) >= 1.0


async def test_what_the_service_has_told_is_not_asked_again(taken_for_another, service, clock):
    service.answers_s = 0.0
    await taken_for_another.identity()

    await kept(taken_for_another)

    assert len(service.asked_s) == 1


async def test_what_the_board_has_told_is_not_asked_again(taken_for_another, service, tmp_path):
    folder = tmp_path / "class" / "dmi" / "id"
    folder.mkdir(parents=True)
    (folder / "board_asset_tag").write_text(f"{NODES}\n")
    await taken_for_another.identity()

    await kept(taken_for_another)

    assert len(service.asked_s) == 1


async def test_a_service_that_must_not_be_asked_is_not(tmp_path):
    await kept(Metadata(None, cast("NodeKube", Kube()), SystemDirs(sys=tmp_path)))


async def test_of_two_who_ask_at_once_none_takes_back_what_the_other_was_told(
    taken_for_another, service, clock, others
):
    """The first one is refused, and later than the second one would be answered."""
    await taken_for_another.identity()
    clock.now_s += 61
    refused = asyncio.Event()
    asked = asyncio.Event()

    async def get(path: str) -> str | None:
        if "document" not in path:
            return None
        if asked.is_set():
            return DOCUMENT
        asked.set()
        await refused.wait()
        raise NodeError(Reason.METADATA_UNAVAILABLE, "no answer")

    service.get = get
    first = asyncio.create_task(taken_for_another.identity())
    await asked.wait()
    second = asyncio.create_task(taken_for_another.identity())
    await asyncio.wait({second}, timeout=0.1)
    refused.set()
    await asyncio.gather(first, second)

    is_own = await taken_for_another.instance_id() == OWN
    assert is_own == bool(others)
