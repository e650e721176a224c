"""What the copy of files writes to an API server that is made up, and what is left of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving.copying.flow import Copier
from provisioner.controller.moving.patience_rules import Patience
from provisioner.controller.moving.phase_rules import Await, GoOn, Undo
from provisioner.model.claim import BIND_COMPLETED
from provisioner.model.copy_report import CopyReport, encoded
from provisioner.model.document import Document
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import VolumeMove
from tests.builders import a_volume
from tests.controller.moving.copying.test_rules import NEW_PV, a_move, old

Json = dict[str, Any]
VOLUME = replace(a_volume(), size_gib=4)


class Api:
    """Keeps objects by plural and name; a claim is bound and a pod runs as soon as it is made."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.others: list[Json] = []
        self.fails: KubeError | None = None
        self.writes: list[str] = []

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}", outcome=Outcome.NOTHING)
        return msgspec.convert(found, resource.type)

    async def list(self, resource: Any, *, namespace: str) -> Any:
        assert namespace == "shop"
        ours = [each for (plural, _), each in self.objects.items() if plural == resource.plural]
        every = [*ours, *self.others]
        return SimpleNamespace(items=[msgspec.convert(each, resource.type) for each in every])

    async def create(
        self, resource: Any, body: Json, namespace: str = "", *, dry_run: bool = False
    ) -> Any:
        if self.fails is not None:
            raise self.fails
        meta = body["metadata"]
        if not dry_run:
            self.writes.append(f"create {meta['name']}")
            found = body | {"metadata": meta | {"uid": f"uid-{meta['name']}"}}
            if resource.plural == "persistentvolumeclaims":
                found["metadata"]["annotations"] = {BIND_COMPLETED: "yes"}
            if resource.plural == "pods":
                found |= {"spec": body["spec"] | {"nodeName": "node-1"}}
            self.objects[resource.plural, meta["name"]] = found
        return msgspec.convert(body, resource.type)

    async def delete(
        self, resource: Any, name: str, *, namespace: str = "", uid: str = "", **_: str
    ) -> None:
        found = self.objects[resource.plural, name]
        assert uid == found["metadata"]["uid"]
        self.writes.append(f"delete {name}")
        del self.objects[resource.plural, name]


class Record:
    """Writes to the same."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.written: list[Json] = []

    async def persistent_volume(self, name: str) -> PersistentVolume | None:
        found = self.api.objects.get(("persistentvolumes", name))
        return msgspec.convert(found, PersistentVolume) if found is not None else None

    async def volume_document(self, name: str) -> Document | None:
        return {"pvc-old": old(), "pvc-u1": NEW_PV}.get(name)

    async def create_volume_object(self, body: Json) -> None:
        resource = SimpleNamespace(plural="persistentvolumes", type=PersistentVolume)
        await self.api.create(resource, body)

    async def remove_volume_object(self, found: PersistentVolume) -> None:
        resource = SimpleNamespace(plural="persistentvolumes")
        await self.api.delete(resource, found.name, uid=found.uid)

    async def write(self, move: VolumeMove, status: Json) -> VolumeMove:
        self.written.append(status)
        return move


def a_copier(image: str = "image:1") -> tuple[Copier, Api, Record]:
    api = Api()
    record = Record(api)
    services: Any = SimpleNamespace(
        client=api,
        caches=SimpleNamespace(claims=SimpleNamespace(observe=lambda _: None)),
        settings=SimpleNamespace(copy_image=image, own_pod="ebs/controller-1"),
    )
    return Copier(services, record, Patience()), api, record  # type: ignore[arg-type]


async def made(copier: Copier, move: VolumeMove) -> None:
    for _ in range(5):
        assert await copier.advance(move) is None


def end(api: Api, report: CopyReport) -> None:
    status = {"name": "copy", "state": {"terminated": {"message": encoded(report)}}}
    api.objects["pods", "move-u1"]["status"] = {
        "phase": "Succeeded",
        "containerStatuses": [status],
    }


async def test_a_copy_is_made_written_down_and_removed_without_a_trace():
    copier, api, record = a_copier()
    await made(copier, a_move())
    assert isinstance(await copier.advance(a_move()), Await)

    report = CopyReport(done=True, files=3, bytes=4096, seconds=2)
    end(api, report)
    assert await copier.advance(a_move()) is None
    copied = msgspec.to_builtins(report)
    assert record.written == [{"copied": copied}]

    steps = [await copier.advance(a_move(copied=copied)) for _ in range(4)]
    assert [type(each) for each in steps] == [Await, Await, Await, GoOn]
    assert api.objects == {}
    assert [each for each in api.writes if each.startswith("delete")] == [
        "delete move-u1",
        "delete move-u1-from",
        "delete move-u1-to",
        "delete pvc-u1-from",
        "delete pvc-u1-to",
    ]


class SpentPatience:
    """Nothing may last any longer."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def is_out(self, *_: Any) -> bool:
        return True

    def forget(self, uid: str) -> None:
        self.forgotten.append(uid)


async def test_a_pod_that_does_not_start_for_too_long_is_given_up_and_one_that_runs_is_not():
    copier, api, _ = a_copier()
    await made(copier, a_move())
    assert isinstance(await copier.advance(a_move()), Await)

    patience = copier._patience = SpentPatience()  # type: ignore[assignment]
    undo = await copier.advance(a_move())
    assert isinstance(undo, Undo)
    assert undo.message.startswith("given up, as it did not get on for 15 minutes: pod move-u1")

    api.objects["pods", "move-u1"]["status"] = {"phase": "Running"}
    assert isinstance(await copier.advance(a_move()), Await)
    assert patience.forgotten == ["u1"]


async def test_a_copy_that_is_done_waits_for_its_detach_as_long_as_it_takes():
    copier, _, _ = a_copier()
    await made(copier, a_move())
    copier._patience = SpentPatience()  # type: ignore[assignment]

    copied = msgspec.to_builtins(CopyReport(done=True))
    assert isinstance(await copier.advance(a_move(copied=copied)), Await)


async def test_a_pod_that_comes_after_the_copy_and_before_the_detach_undoes_it():
    copier, api, _ = a_copier()
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    api.others = [
        {
            "metadata": {"name": "sneak", "namespace": "shop", "uid": "x"},
            "spec": {"nodeName": "node-1", "volumes": [volume]},
        }
    ]
    copied = msgspec.to_builtins(CopyReport(done=True))

    assert isinstance(await copier.advance(a_move(copied=copied)), Undo)


@pytest.mark.parametrize("steps", range(6))
async def test_a_copy_is_removed_whole_wherever_it_was_when_the_move_was_aborted(steps: int):
    copier, api, _ = a_copier()
    for _ in range(steps):
        await copier.advance(a_move())

    for _ in range(4):
        left = await copier.remove(a_move(phase="Aborting"))

    assert left is None
    assert api.objects == {}


async def test_what_is_another_s_and_has_our_name_is_not_deleted():
    copier, api, _ = a_copier()
    meta = {"name": "move-u1", "namespace": "shop", "uid": "x"}
    api.objects["pods", "move-u1"] = {"metadata": meta}

    assert await copier.remove(a_move()) is None
    assert ("pods", "move-u1") in api.objects


async def test_requests_of_another_process_or_with_a_lost_reply_may_come_yet():
    copier, api, _ = a_copier()
    aborted = a_move(phase="Aborting", undoneFrom="Copying")
    assert copier.may_come(aborted)
    assert not copier.may_come(a_move(phase="Aborting", undoneFrom="Creating"))

    copier.begin("u1")
    assert not copier.may_come(aborted)

    api.fails = KubeError(Reason.TIMED_OUT, "lost", outcome=Outcome.UNKNOWN)
    with pytest.raises(KubeError):
        await copier.advance(a_move())
    assert copier.may_come(aborted)


async def test_a_pod_that_the_namespace_does_not_allow_is_told_before_anything_is_touched():
    copier, api, _ = a_copier()
    assert await copier.why_not(a_move(), old(), VOLUME) == ""
    assert api.objects == {}

    text = 'pods "move-u1" is forbidden: violates PodSecurity "restricted:latest"'
    api.fails = KubeError(Reason.FORBIDDEN, text, outcome=Outcome.NOTHING)
    said = await copier.why_not(a_move(), old(), VOLUME)
    assert 'violates PodSecurity "restricted:latest"' in said
    assert "allow it in namespace shop" in said


async def test_a_move_that_copies_nothing_asks_for_no_pod():
    copier, api, _ = a_copier()
    api.fails = KubeError(Reason.FORBIDDEN, "no", outcome=Outcome.NOTHING)
    larger = msgspec.structs.replace(a_move().spec, to=type(a_move().spec.to)(size="900Gi"))

    move = msgspec.structs.replace(a_move(), spec=larger)
    assert await copier.why_not(move, old(), VOLUME) == ""


async def test_the_image_is_that_of_the_controller_unless_another_is_named():
    copier, api, _ = a_copier("")
    said = await copier.why_not(a_move(), old(), VOLUME)
    assert "--copy-image" in said

    containers = [{"name": "proxy", "image": "p:1"}, {"name": "controller", "image": "c:1"}]
    meta = {"name": "controller-1", "namespace": "ebs", "uid": "c"}
    api.objects["pods", "controller-1"] = {"metadata": meta, "spec": {"containers": containers}}
    assert await copier._image() == "c:1"
    assert await copier.why_not(a_move(), old(), VOLUME) == ""
    assert await a_copier("named:1")[0]._image() == "named:1"
