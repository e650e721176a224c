"""How a pod comes to check the new volume of a move, what undoes the move, and that nothing is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.copying import rules
from provisioner.controller.moving.copying.plan_rules import NO_IMAGE_TO_CHECK
from provisioner.controller.moving.phase_rules import Await, GoOn, Undo, Use
from provisioner.model.copy_pod import CopyPod
from provisioner.model.copy_report import CheckReport, encoded
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.model.file_systems import FILE_SYSTEMS
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import MovePlan, VolumeMove
from tests.builders import ZONE
from tests.controller.moving import test_plan_rules as plans
from tests.controller.moving.copying import test_flow as copies
from tests.controller.moving.copying.test_plan_rules import csi
from tests.controller.moving.copying.test_plan_rules import old as old_of_plan
from tests.controller.moving.copying.test_rules import NEW, NEW_PV, a_move, old

UUID = "c1b9d5a2-f162-11cf-9ece-0020afc76f16"
FOUND = CheckReport(file_system="xfs", uuid=UUID)
CHECKED = structs.replace(FOUND, node="node-1")


def a_check(**status: Any) -> VolumeMove:
    body = {"spec": {"csi": {"fsType": "xfs"}}}
    return a_move(phase="Checking", plan={"checks": True}, persistentVolume=body, **status)


MOVE = a_check()


def a_pod(report: CheckReport | None, text: str = "") -> CopyPod:
    body = rules.pod_body(MOVE, "image:1", rules.CHECK)
    body["spec"]["nodeName"] = "node-1"
    told = encoded(report) if report is not None else text
    status = {"name": "check", "state": {"terminated": {"message": told}}}
    return msgspec.convert(
        body | {"status": {"phase": "Succeeded", "containerStatuses": [status]}}, CopyPod
    )


def seen(pod: CopyPod | None = None, **changes: Any) -> rules.Seen:
    volume = msgspec.convert(rules.volume_body(MOVE, "check", old(), NEW_PV), PersistentVolume)
    body = rules.claim_body(MOVE, "check", volume)
    body["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = msgspec.convert(body, type(NEW_PV))
    return replace(rules.Seen({"check": volume}, {"check": claim}, pod), **changes)


def test_the_new_volume_alone_is_mounted_read_only_without_a_replay_of_its_log():
    spec = rules.volume_body(MOVE, "check", old(), NEW_PV)["spec"]
    body = rules.pod_body(MOVE, "image:1", rules.CHECK)
    [container] = body["spec"]["containers"]

    assert spec["csi"]["volumeHandle"] == NEW
    assert spec["mountOptions"] == ["ro", "norecovery", "noatime"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert container["args"] == ["check-volume", "/check"]
    assert container["volumeMounts"] == [{"name": "check", "mountPath": "/check", "readOnly": True}]
    [volume] = body["spec"]["volumes"]
    claim = {"claimName": "move-u1-check", "readOnly": True}
    assert volume["persistentVolumeClaim"] == claim
    checked = seen().volumes["check"]
    assert checked is not None
    assert checked.is_only_read


def test_the_pod_that_checks_may_do_less_than_the_one_that_copies():
    check, copy = (rules.pod_body(MOVE, "image:1", job) for job in (rules.CHECK, rules.COPY))
    ours, theirs = (each["spec"]["containers"][0]["securityContext"] for each in (check, copy))

    assert ours["capabilities"] == {"add": ["DAC_OVERRIDE"], "drop": ["ALL"]}
    assert ours | {"capabilities": None} == theirs | {"capabilities": None}


@pytest.mark.parametrize("named", ["xfs", "", None])
def test_what_the_node_has_found_is_written_down_with_its_name(named: str | None):
    move = a_check()
    move.told.persistent_volume["spec"]["csi"]["fsType"] = named  # type: ignore[index]

    assert rules.next_step(move, seen(a_pod(FOUND))) == rules.Checked(CHECKED)


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        (
            a_pod(CheckReport(file_system="ext4")),
            f"the new volume {NEW} has the file system ext4, and PersistentVolume pvc-u1 names xfs",
        ),
        (
            a_pod(CheckReport(refused="its root directory cannot be listed: Input/output error")),
            (
                f"the new volume {NEW} cannot be read: its root directory cannot be listed: "
                "Input/output error"
            ),
        ),
        (
            a_pod(None, "no JSON"),
            f"pod move-u1 has ended without a report, so the new volume {NEW} is not checked",
        ),
        (
            a_pod(CheckReport()),
            f"pod move-u1 has ended without a report, so the new volume {NEW} is not checked",
        ),
    ],
)
def test_a_volume_that_is_not_as_it_should_be_undoes_the_move_in_one_sentence(
    pod: CopyPod, said: str
):
    assert rules.next_step(MOVE, seen(pod)) == Undo(said)


def test_a_pod_that_does_not_start_is_told_with_what_helps_and_waited_for():
    pod = structs.replace(a_pod(FOUND), status=structs.replace(a_pod(FOUND).status, phase=""))
    pod = structs.replace(pod, status=structs.replace(pod.status, container_statuses=None))

    assert rules.next_step(MOVE, seen(pod)) == Await(
        "pod move-u1, which checks the new volume, is starting on node node-1; if it does not, its "
        "events say why: kubectl -n shop describe pod move-u1"
    )


def test_who_uses_the_claim_of_a_check_is_waited_for_as_nobody_can_write_by_it():
    used = seen(a_pod(FOUND), strangers=[Use("nosy")])

    assert rules.next_step(MOVE, used) == rules.Checked(CHECKED)
    left = rules.leftover(MOVE, replace(used, pod=None))
    assert left == Await(
        "waiting until claim move-u1-check of the check is gone: it is used by nosy"
    )


def ended(api: copies.Api, report: CheckReport) -> None:
    status = {"name": "check", "state": {"terminated": {"message": encoded(report)}}}
    api.objects["pods", "move-u1"]["status"] = {
        "phase": "Succeeded",
        "containerStatuses": [status],
    }


async def test_a_check_is_made_written_down_and_removed_without_a_trace():
    pods, api, record = copies.a_copier()
    for _ in range(3):
        assert await pods.advance(MOVE) is None
    assert isinstance(await pods.advance(MOVE), Await)

    ended(api, FOUND)
    assert await pods.advance(MOVE) is None
    checked = {"fileSystem": "xfs", "uuid": UUID, "node": "node-1"}
    assert record.written == [{"checked": checked}]

    steps = [await pods.advance(a_check(checked=checked)) for _ in range(4)]
    assert [type(each) for each in steps] == [Await, Await, Await, GoOn]
    assert api.objects == {}
    assert api.writes == [
        *("create pvc-u1-check", "create move-u1-check", "create move-u1"),
        *("delete move-u1", "delete move-u1-check", "delete pvc-u1-check"),
    ]


@pytest.mark.parametrize("steps", range(4))
async def test_a_check_is_removed_whole_wherever_it_was_when_the_move_was_aborted(steps: int):
    pods, api, _ = copies.a_copier()
    for _ in range(steps):
        await pods.advance(MOVE)

    for _ in range(4):
        left = await pods.remove(a_check(undoneFrom="Checking"))

    assert left is None
    assert api.objects == {}


async def test_pods_of_the_claim_that_wait_for_it_do_not_disturb_a_check():
    pods, api, _ = copies.a_copier()
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    api.others = [
        {
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "x"},
            "spec": {"nodeName": "node-1", "volumes": [volume]},
        }
    ]
    for _ in range(3):
        assert await pods.advance(MOVE) is None
    ended(api, FOUND)
    assert (await pods._look(MOVE)).strangers == []
    assert await pods.advance(MOVE) is None


async def test_requests_of_another_process_for_a_check_may_come_yet():
    pods, _, _ = copies.a_copier()

    assert pods.may_come(a_check(undoneFrom="Checking"))
    assert pods.may_come(a_check(checked={"fileSystem": "xfs"}))
    assert not pods.may_come(a_check(undoneFrom="Creating"))
    pods.begin("u1")
    assert not pods.may_come(a_check(undoneFrom="Checking"))


def asked(to: Any) -> VolumeMove:
    move = plans.a_move(to=to)
    return structs.replace(move, spec=structs.replace(move.spec, check=True))


async def test_a_check_that_the_namespace_does_not_allow_is_told_before_anything_is_touched():
    pods, api, _ = copies.a_copier()
    move = asked({"zone": ZONE})
    assert await pods.why_not(move, old(), copies.VOLUME) == ""
    assert api.objects == {}

    text = 'pods "move-u1" is forbidden: violates PodSecurity "restricted:latest"'
    api.fails = KubeError(Reason.FORBIDDEN, text, outcome=Outcome.NOTHING)
    said = await pods.why_not(move, old(), copies.VOLUME)
    assert said.startswith("no pod can check the new volume")
    assert 'violates PodSecurity "restricted:latest"' in said


async def test_a_move_that_makes_no_volume_needs_no_pod():
    pods, _, _ = copies.a_copier("")

    assert await pods.why_not(asked({"source": "to-b"}), old(), copies.VOLUME) == ""


async def test_without_a_known_image_a_check_is_refused():
    pods, _, _ = copies.a_copier("")

    assert await pods.why_not(asked({"zone": ZONE}), old(), copies.VOLUME) == NO_IMAGE_TO_CHECK


def test_a_check_is_in_the_plan_of_a_move_to_a_new_volume_with_what_it_means():
    plan = plans.planned(plans.facts(asked({"zone": plans.THERE}))).plan

    assert plan.checks
    assert any("mounts the new volume read-only" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("to", "changes", "said"),
    [
        ({"size": "2Gi"}, {}, "check says nothing more here: the pod that copies files mounts"),
        ({"storageClassName": "other"}, {}, "check says nothing here: no new volume is made"),
    ],
)
def test_where_a_check_says_nothing_it_is_left_out_and_the_plan_says_so(
    to: Any, changes: Any, said: str
):
    given = plans.facts(asked(to), storage_class=plans.a_storage_class("other"), **changes)
    plan: MovePlan = plans.planned(given).plan

    assert not plan.checks
    assert any(note.startswith(said) for note in plan.notes), plan.notes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"document": old_of_plan(volumeMode="Block")}, "no file system to check: leave check out"),
        ({"document": csi(fsType="ntfs")}, "has the file system ntfs"),
        ({"pod_refused": NO_IMAGE_TO_CHECK}, "--copy-image"),
    ],
)
def test_a_check_that_cannot_be_made_is_refused_in_one_sentence(changes: Any, said: str):
    message = plans.refused(plans.facts(asked({"zone": plans.THERE}), **changes))

    assert said in message
    assert ". " not in message


@pytest.mark.parametrize("file_system", FILE_SYSTEMS)
def test_each_file_system_of_the_driver_can_be_checked(file_system: str):
    given = plans.facts(asked({"zone": plans.THERE}), document=csi(fsType=file_system))

    assert plans.planned(given).plan.checks
