"""What a move writes to the PersistentVolume that its claim has."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving import phase_rules
from provisioner.controller.moving.record import MoveRecord, broken
from provisioner.kube.client import Patch
from provisioner.kube.shared_reads import SharedReads
from provisioner.model.claim import Claim
from provisioner.model.document import Document
from provisioner.model.errors import KubeError, Reason
from provisioner.model.names import (
    ATTACHED_BEFORE_MOVE,
    HELD_FOR_MOVE,
    LEFT_BY_MOVE,
    POLICY_BEFORE_MOVE,
)
from provisioner.model.persistent_volume import (
    PROVISIONER_FINALIZER,
    PersistentVolume,
    finalizer_of_attacher,
)
from provisioner.model.volume_move import MovePlan, Phase, VolumeMove
from provisioner.model.workload import ControlledPod
from tests.builders import DRIVER

META = {"name": "to-csi", "namespace": "shop", "uid": "move-uid"}
MOVE = msgspec.convert({"metadata": META, "spec": {"claimName": "data"}}, VolumeMove)
HELD = {HELD_FOR_MOVE: "shop/to-csi"}
NOTED = {POLICY_BEFORE_MOVE: "Delete"}
EXACTLY = {"uid": "pv-uid", "resourceVersion": "7"}


class FakeClient:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def patch(self, _: Any, name: str, body: Any, *, kind: Patch, namespace: str = "") -> Any:
        assert (name, namespace) in {("pvc-old", ""), ("data", "shop")}
        assert kind is Patch.MERGE
        self.bodies.append(body)
        return a_pv() if name == "pvc-old" else None


def a_record() -> tuple[MoveRecord, FakeClient]:
    record, client = object.__new__(MoveRecord), FakeClient()
    cache = SimpleNamespace(observe=lambda _: None)
    record._client = client  # type: ignore[assignment]
    record._driver = DRIVER
    record._pods = SharedReads()
    record._caches = SimpleNamespace(persistent_volumes=cache)  # type: ignore[assignment]
    return record, client


def a_pv(policy: str = "Retain", **notes: str) -> PersistentVolume:
    meta = {"name": "pvc-old", **EXACTLY, "annotations": notes}
    body = {"metadata": meta, "spec": {"persistentVolumeReclaimPolicy": policy}}
    return msgspec.convert(body, PersistentVolume)


async def test_retain_and_the_policy_of_before_are_one_write_to_the_version_that_was_read():
    record, client = a_record()

    await record.retain(a_pv("Delete"))

    assert client.bodies == [
        {
            "metadata": EXACTLY | {"annotations": NOTED},
            "spec": {"persistentVolumeReclaimPolicy": "Retain"},
        }
    ]


@pytest.mark.parametrize(("stops", "told"), [(["sts/db: 3 to 0"], ["MoveHeld"]), ([], [])])
async def test_the_beginning_of_a_stop_is_an_event_if_pods_stop(stops: list[str], told: list[str]):
    record, _ = a_record()
    reasons: list[str] = []
    record._events = SimpleNamespace(record=lambda _, **said: reasons.append(said["reason"]))  # type: ignore[assignment]
    record.write = lambda move, _: asyncio.sleep(0, move)  # type: ignore[method-assign,assignment]
    planned = msgspec.structs.replace(MOVE.told, plan=MovePlan(stops=stops))

    await record.advance(msgspec.structs.replace(MOVE, status=planned), Phase.HELD)

    assert reasons == told


async def test_the_finalizer_of_delete_goes_with_the_policy():
    record, client = a_record()
    found = a_pv("Delete")
    kept = ["kubernetes.io/pv-protection", finalizer_of_attacher(DRIVER)]
    marked = msgspec.structs.replace(found.metadata, finalizers=[PROVISIONER_FINALIZER, *kept])

    await record.retain(msgspec.structs.replace(found, metadata=marked))

    [body] = client.bodies
    assert body["metadata"]["finalizers"] == kept


async def test_the_policy_comes_back_in_the_write_that_lets_go():
    record, client = a_record()

    await record.let_go(MOVE, a_pv(**HELD, **NOTED), "Delete")

    notes = {HELD_FOR_MOVE: None, POLICY_BEFORE_MOVE: None}
    assert client.bodies == [
        {
            "metadata": EXACTLY | {"annotations": notes},
            "spec": {"persistentVolumeReclaimPolicy": "Delete"},
        }
    ]


@pytest.mark.parametrize(("notes", "policy"), [(HELD | NOTED, ""), (HELD, "Delete")])
async def test_retain_stays_after_the_swap_and_where_the_move_has_not_set_it(
    notes: dict[str, str], policy: str
):
    record, client = a_record()

    await record.let_go(MOVE, a_pv(**notes), policy)

    assert client.bodies == [{"metadata": EXACTLY | {"annotations": dict.fromkeys(notes)}}]


@pytest.mark.parametrize(
    ("notes", "written"),
    [({}, ["shop/to-csi", None]), ({LEFT_BY_MOVE: "shop/to-csi"}, [None]), (HELD, [])],
)
async def test_a_hold_that_is_under_way_at_the_end_of_its_move_comes_too_late(
    notes: dict[str, str], written: list[str | None]
):
    """Each write is another version; nothing of them is left."""
    record, client = a_record()

    await record.leave(MOVE, a_pv(**notes))
    await record.leave(MOVE, None)

    assert client.bodies == [
        {"metadata": EXACTLY | {"annotations": {LEFT_BY_MOVE: each}}} for each in written
    ]


async def test_the_attachers_mark_that_a_hold_took_away_comes_back_with_its_end():
    record, client = a_record()

    await record.let_go(MOVE, a_pv(**HELD, **{ATTACHED_BEFORE_MOVE: "true"}))

    [body] = client.bodies
    notes = {HELD_FOR_MOVE: None, ATTACHED_BEFORE_MOVE: None}
    marks = [finalizer_of_attacher(DRIVER)]
    assert body == {"metadata": EXACTLY | {"annotations": notes, "finalizers": marks}}


@pytest.mark.parametrize("notes", [{}, {HELD_FOR_MOVE: "shop/another"} | NOTED])
async def test_what_is_not_of_this_move_is_left(notes: dict[str, str]):
    record, client = a_record()

    await record.let_go(MOVE, a_pv(**notes), "Delete")
    await record.let_go(MOVE, None, "Delete")

    assert client.bodies == []


async def test_the_hold_and_the_attachers_finalizer_are_one_write_to_the_version_that_was_read():
    record, client = a_record()
    meta = {"name": "pvc-old", **EXACTLY, "finalizers": ["external-attacher/ebs-csi-aws-com"]}

    await record.hold(MOVE, msgspec.convert({"metadata": meta}, PersistentVolume), DRIVER)

    notes = HELD | {ATTACHED_BEFORE_MOVE: "true"}
    assert client.bodies == [{"metadata": EXACTLY | {"annotations": notes, "finalizers": []}}]


async def test_a_claim_that_is_kept_becomes_another_version():
    record, client = a_record()
    meta = {"name": "data", "namespace": "shop", "uid": "claim-uid", "resourceVersion": "3"}

    await record.keep_claim(MOVE, msgspec.convert({"metadata": meta}, Document))

    note = {"annotations": {LEFT_BY_MOVE: "shop/to-csi"}}
    assert client.bodies == [{"metadata": {"uid": "claim-uid", "resourceVersion": "3"} | note}]


class FakePods:
    """Lists two pods: one of the claim, one of a claim that may be moved with it, and a third."""

    def __init__(self) -> None:
        self.lists = 0

    async def list(self, _: Any, *, namespace: str) -> Any:
        assert namespace == "shop"
        self.lists += 1
        return SimpleNamespace(items=[using(each) for each in ("data", "logs", "other")])


def using(claim: str) -> ControlledPod:
    volumes = [{"persistentVolumeClaim": {"claimName": claim}}]
    meta = {"name": f"with-{claim}", "namespace": "shop"}
    return msgspec.convert({"metadata": meta, "spec": {"volumes": volumes}}, ControlledPod)


@pytest.mark.parametrize(
    ("moved_with", "names"), [([], ["with-data"]), (["logs"], ["with-data", "with-logs"])]
)
async def test_the_pods_of_claims_that_are_moved_together_stop_together(
    moved_with: list[str], names: list[str]
):
    record, _ = a_record()
    record._client = FakePods()  # type: ignore[assignment]
    spec = {"claimName": "data", "movedWith": moved_with}
    move = msgspec.convert({"metadata": META, "spec": spec}, VolumeMove)

    assert [each.name for each in await record.pods(move)] == names


async def test_pods_are_read_once_for_all_moves_that_ask_at_the_same_time():
    record, _ = a_record()
    record._client = pods = FakePods()  # type: ignore[assignment]
    move = msgspec.convert({"metadata": META, "spec": {"claimName": "data"}}, VolumeMove)

    found = await asyncio.gather(*(record.pods(move) for _ in range(3)))

    assert [[each.name for each in some] for some in found] == [["with-data"]] * 3
    assert pods.lists == 1


# -- what is known, and what is read


CLAIM_KEY = "shop/data"
SOURCE = {"claimUID": "claim-uid", "persistentVolume": "pvc-old"}


def a_claim(volume: str, kind: Any = Claim) -> Any:
    meta = {"name": "data", "namespace": "shop", "uid": "claim-uid", "resourceVersion": "9"}
    return msgspec.convert({"metadata": meta, "spec": {"volumeName": volume}}, kind)


class FakeApi:
    """An API server that counts what is read, and caches beside it."""

    def __init__(self, move: VolumeMove, known: Claim | None) -> None:
        self.found: dict[str, Any] = {
            "to-csi": move,
            "pvc-old": a_pv(),
            "data": a_claim("pvc-old", Document),
        }
        self.read: list[str] = []
        nothing = SimpleNamespace(observe=lambda _: None)
        self.caches = SimpleNamespace(
            move=lambda _: move,
            moves=nothing,
            claims=SimpleNamespace(get={CLAIM_KEY: known}.get),
            persistent_volumes=SimpleNamespace(get={}.get, observe=lambda _: None),
        )

    async def get(self, _: Any, name: str, __: str = "") -> Any:
        self.read.append(name)
        return self.found[name]


def a_reader(move: VolumeMove, known: Claim | None) -> tuple[MoveRecord, FakeApi]:
    api = FakeApi(move, known)
    services: Any = SimpleNamespace(
        client=api, caches=api.caches, events=None, settings=SimpleNamespace(driver=DRIVER)
    )
    return MoveRecord(services), api


def a_planned_move(phase: str, policy: str = "Wait") -> VolumeMove:
    spec = {"claimName": "data", "consumers": {"policy": policy}}
    status = {"phase": phase, "source": SOURCE}
    return msgspec.convert({"metadata": META, "spec": spec, "status": status}, VolumeMove)


async def test_a_move_is_read_once_and_again_after_a_failure():
    record, api = a_reader(a_planned_move("Creating"), a_claim("pvc-old"))

    await record.known_move("move-uid")
    await record.known_claim(MOVE)
    assert api.read == ["to-csi", "data"]

    record.trust("move-uid")
    await record.known_move("move-uid")
    await record.known_claim(MOVE)
    assert api.read == ["to-csi", "data"]

    record.doubt("move-uid")
    await record.known_move("move-uid")
    await record.known_claim(MOVE)
    assert api.read == ["to-csi", "data"] * 2


@pytest.mark.parametrize(
    ("phase", "policy", "is_read"),
    [
        ("Held", "Restart", True),
        ("Held", "ScaleDown", True),
        ("Held", "Wait", False),
        ("Done", "Wait", True),
        ("Swapping", "Wait", False),
    ],
)
async def test_a_move_is_read_before_pods_are_stopped_and_before_its_old_volume_is_let_go(
    phase: str, policy: str, *, is_read: bool
):
    record, api = a_reader(a_planned_move(phase, policy), None)
    record.trust("move-uid")

    await record.known_move("move-uid")

    assert (api.read == ["to-csi"]) is is_read


async def test_what_a_cache_lacks_is_read():
    record, api = a_reader(a_planned_move("Creating"), None)
    record.trust("move-uid")

    assert await record.known_claim(MOVE) is not None
    assert await record.known_volume(MOVE, "pvc-old") is not None
    assert api.read == ["data", "pvc-old"]


@pytest.mark.parametrize("volume", ["pvc-old", "pvc-other"])
async def test_a_claim_that_seems_to_be_changed_is_read_before_its_move_is_undone(volume: str):
    move = a_planned_move("Creating")
    record, api = a_reader(move, a_claim("", Claim))
    record.trust("move-uid")
    api.found["data"] = a_claim(volume, Document)

    assert (await broken(record, move) is None) is (volume == "pvc-old")
    assert api.read == ["data"]


async def test_a_move_that_was_created_again_under_its_name_is_another_one():
    record, api = a_reader(a_planned_move("Creating"), None)
    other = msgspec.structs.replace(MOVE.metadata, uid="another-uid")
    api.found["to-csi"] = msgspec.structs.replace(MOVE, metadata=other)

    assert await record.move("move-uid") is None


# -- the claim is deleted, and created again


class Deletions:
    """Keeps with which preconditions something is deleted."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    async def delete(self, _: Any, name: str, **precisely: str) -> None:
        self.asked.append({"name": name, **precisely})


async def test_only_the_version_of_a_claim_or_an_object_that_was_read_is_deleted():
    """What somebody has changed since is neither recorded nor known to be unused."""
    record, _ = a_record()
    api = Deletions()
    record._client = api  # type: ignore[assignment]

    await record.remove_claim(MOVE, "claim-uid", "9")
    await record.remove_volume_object(a_pv())

    assert api.asked == [
        {"name": "data", "namespace": "shop", "uid": "claim-uid", "resource_version": "9"},
        {"name": "pvc-old", "uid": "pv-uid", "resource_version": "7"},
    ]


@pytest.mark.parametrize("deleting", [True, False])
async def test_a_claim_is_given_up_only_if_its_move_goes_with_the_namespace(*, deleting: bool):
    record, _ = a_record()
    going = KubeError(FORBIDDEN, "namespace shop because it is being terminated")

    async def create(*_: Any) -> None:
        raise going

    record._client = SimpleNamespace(create=create)  # type: ignore[assignment]
    text = phase_rules.record(a_claim("pvc-old", Document))
    at = "2026-11-29T01:00:00Z" if deleting else None
    move = msgspec.structs.replace(
        MOVE,
        metadata=msgspec.structs.replace(MOVE.metadata, deletion_timestamp=at),
        status=msgspec.structs.replace(MOVE.told, claim=text),
    )

    if deleting:
        assert await record.create_claim(move) is False
    else:
        with pytest.raises(KubeError, match="being terminated"):
            await record.create_claim(move)


# -- whether the claim could be created again


class Admission:
    """Answers a try to create a claim with a refusal."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.error = KubeError(reason, message)
        self.tried: list[tuple[Any, bool]] = []

    async def create(self, _: Any, body: Any, namespace: str, *, dry_run: bool) -> Any:
        assert namespace == "shop"
        self.tried.append((body, dry_run))
        raise self.error


FORBIDDEN, REJECTED = Reason.FORBIDDEN, Reason.REJECTED
LIMIT = "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi"


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        (Reason.OBJECT_EXISTS, 'persistentvolumeclaims "data" already exists', True),
        (FORBIDDEN, "exceeded quota: q, requested: persistentvolumeclaims=1", True),
        (REJECTED, 'admission webhook "w" does not support dry run', True),
        (FORBIDDEN, "namespace shop because it is being terminated", False),
        (FORBIDDEN, LIMIT, None),
        (REJECTED, "spec.resources: Invalid value", None),
        (Reason.UNREACHABLE, "no answer", None),
    ],
)
async def test_a_claim_is_not_deleted_that_admission_would_not_let_in_again(
    reason: Reason, message: str, *, expected: bool | None
):
    record, _ = a_record()
    admission = Admission(reason, message)
    record._client = admission  # type: ignore[assignment]
    meta = {"name": "data", "namespace": "shop", "uid": "u", "resourceVersion": "1"}
    recorded = phase_rules.record(msgspec.convert({"metadata": meta}, Document))

    if expected is None:
        with pytest.raises(KubeError, match=message[:20]):
            await record.may_create_claim(MOVE, recorded)
    else:
        assert await record.may_create_claim(MOVE, recorded) is expected
    ((body, dry_run),) = admission.tried
    assert (dry_run, body["spec"]["volumeName"]) == (True, "pvc-move-uid")
