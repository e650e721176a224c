"""What EC2 is asked before a move is planned, and what it is not asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from provisioner.controller.moving.plan_rules import Planned
from provisioner.controller.moving.planning import Planning, _as_claim
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.ceilings import Ceilings
from provisioner.ec2.volumes import Volumes
from provisioner.metrics import Metrics
from provisioner.model.claim import BIND_COMPLETED, LabelledClaim
from provisioner.model.decision import Refuse
from provisioner.model.document import Document
from provisioner.model.errors import Ec2Error, KubeError, Reason
from provisioner.model.volume_move import MovePlan, VolumeMove
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.builders import DRIVER
from tests.controller.moving.test_plan_rules import a_move, a_storage_class, facts

CLAIM = msgspec.convert({"metadata": {"name": "data", "namespace": "shop"}}, Document)
DENIED = {"action": "CreateVolume", "do": "error", "code": "UnauthorizedOperation"}


@pytest_asyncio.fixture
async def planning(strict_ec2: StrictEc2, aws_environment: None) -> AsyncIterator[Planning]:
    calls = Ec2Calls.connect(region="us-east-1", endpoint=strict_ec2.endpoint, metrics=Metrics())
    volumes = Volumes(calls)
    ceilings = Ceilings(volumes, cluster_id="prod", extra_tags=())
    made = object.__new__(Planning)
    settings = SimpleNamespace(cluster_id="prod", extra_tags=())
    services = SimpleNamespace(settings=settings, volumes=volumes, ceilings=ceilings)
    made._services, made._driver = services, DRIVER  # type: ignore[assignment]
    yield made
    await ceilings.close()
    await calls.close()


def to(storage_class: dict[str, str] | None = None, **wish: str) -> Any:
    if storage_class is None:
        return facts(a_move(to=wish))
    move = a_move(to={"storageClassName": "new"} | wish)
    return facts(move, storage_class=a_storage_class("new", **storage_class))


def tries(strict_ec2: StrictEc2) -> int:
    return len(strict_ec2.log("CreateVolume"))


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (to(size="65Ti"), "66560"),
        (to({"type": "gp2"}, size="20Ti"), "20480"),
        (to({"type": "standard"}, size="2Ti"), "2048"),
        (to({"throughput": "2001", "iops": "16000"}, size="100Gi"), "2001"),
    ],
    ids=["size", "size-of-gp2", "size-of-standard", "throughput"],
)
async def test_what_ec2_refuses_is_refused_in_the_plan_in_its_words(
    wish: Any, says: str, planning: Planning
):
    found = await planning._decided(wish)

    assert isinstance(found, Refuse)
    assert found.message.startswith("the new volume cannot be created: ")
    assert says in found.message


async def test_what_every_region_has_takes_no_call(planning: Planning, strict_ec2: StrictEc2):
    strict_ec2.control(log=True)
    fastest = {"iops": "16000", "throughput": "1000"}

    assert isinstance(await planning._decided(to(fastest, size="16Ti")), Planned)
    assert tries(strict_ec2) == 0

    assert isinstance(await planning._decided(to(fastest, size="64Ti")), Planned)
    assert tries(strict_ec2) == 1


async def test_what_ec2_gives_beyond_what_is_documented_is_planned(
    planning: Planning, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(planning._services.volumes, "dry_run", _nothing_against)

    found = await planning._decided(to(size="65Ti"))

    assert isinstance(found, Planned)
    assert found.plan.target.size_gib == 66_560


async def _nothing_against(_: object) -> None:
    return None


async def test_a_class_gets_no_more_iops_than_the_region_gives_as_for_a_new_claim(
    planning: Planning, strict_ec2: StrictEc2
):
    strict_ec2.control(iops_ceilings={"gp3": 16_000})

    found = await planning._decided(to({"iops": "40000"}, size="100Gi"))

    assert isinstance(found, Planned)
    assert found.request is not None
    assert (found.request.iops, found.plan.target.iops) == (16_000, 16_000)
    (note,) = [each for each in found.plan.notes if "IOPS" in each]
    assert note == (
        "the class requests 40000 IOPS for the gp3 volume of 100 GiB, but it gets 16000: EC2 "
        "allows volumes of type gp3 at most 16000 IOPS in this region"
    )


async def test_where_ec2_may_not_be_asked_the_plan_is_made(
    planning: Planning, strict_ec2: StrictEc2
):
    strict_ec2.control(faults=[DENIED | {"http_status": 403}])

    assert isinstance(await planning._decided(to(size="65Ti")), Planned)


async def test_where_ec2_does_not_answer_nothing_is_planned(
    planning: Planning, monkeypatch: pytest.MonkeyPatch
):
    async def silent(_: object) -> None:
        raise Ec2Error(Reason.UNREACHABLE, "no answer", action="CreateVolume")

    monkeypatch.setattr(planning._services.volumes, "dry_run", silent)

    with pytest.raises(Ec2Error, match="no answer"):
        await planning._decided(to(size="65Ti"))


class Claims:
    """A claim, and what admission has against another one of it."""

    def __init__(self, refusal: KubeError | None, *, may: bool = True) -> None:
        self.refusal, self.may = refusal, may
        self.plans: list[MovePlan | None] = []

    async def may_create_claim(self, move: VolumeMove, recorded: str) -> bool:
        assert recorded
        self.plans.append(move.told.plan)
        if self.refusal is not None:
            raise self.refusal
        return self.may


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        (
            Claims(KubeError(Reason.FORBIDDEN, "maximum storage usage is 5Gi")),
            "the claim could not be created again: maximum storage usage is 5Gi",
        ),
        (Claims(None, may=False), "namespace shop is being deleted"),
        (Claims(None), None),
    ],
)
async def test_a_claim_that_could_not_come_back_is_not_moved(claims: Claims, says: str | None):
    planning, plan = object.__new__(Planning), MovePlan(copies_files=True)
    planning._record = claims  # type: ignore[assignment]

    refused = await planning._not_again(replace(facts(), claim_document=CLAIM), plan)

    assert (refused.message if refused is not None else None) == says
    assert claims.plans == [plan]


async def test_while_the_api_server_does_not_answer_nothing_is_refused():
    planning = object.__new__(Planning)
    silent = Claims(KubeError(Reason.UNREACHABLE, "no answer"))
    planning._record = silent  # type: ignore[assignment]

    with pytest.raises(KubeError, match="no answer"):
        await planning._not_again(replace(facts(), claim_document=CLAIM), MovePlan())


async def test_one_read_of_a_claim_tells_what_is_planned_and_what_is_written_again():
    body = {
        "metadata": {
            "name": "data",
            "namespace": "shop",
            "uid": "uid-1",
            "labels": {"app": "shop"},
            "annotations": {BIND_COMPLETED: "yes"},
            "creationTimestamp": "2026-11-29T01:00:00Z",
            "deletionTimestamp": "2026-11-29T02:00:00Z",
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "4Gi"}},
            "volumeName": "pvc-old",
        },
        "status": {"phase": "Bound", "capacity": {"storage": "4Gi"}},
    }

    found = _as_claim(msgspec.convert(body, Document))

    assert found is not None
    assert found == msgspec.convert(body, LabelledClaim)
    assert (found.is_bound, found.deleting, found.capacity) == (True, True, "4Gi")
