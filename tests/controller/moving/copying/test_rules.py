"""How a pod comes to copy the files, what makes the move undo it, and how nothing of it is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.copying import rules
from provisioner.controller.moving.phase_rules import (
    Await,
    GoOn,
    InUse,
    Undo,
    Use,
    next_copied_step,
    recreated,
)
from provisioner.model.claim import BIND_COMPLETED
from provisioner.model.copy_pod import CopyPod
from provisioner.model.copy_report import CopyReport, encoded
from provisioner.model.document import Document
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import normalised_handle, serial_of
from provisioner.model.volume_move import VolumeMove
from tests.builders import DRIVER, VOLUME, a_volume

NEW = "vol-00000000000000002"
STORED = {"spec": {"capacity": {"storage": "4Gi"}, "mountOptions": ["noatime", "rw", "commit=30"]}}


def a_move(**status: Any) -> VolumeMove:
    body = {
        "metadata": {"name": "smaller", "namespace": "shop", "uid": "u1"},
        "spec": {"claimName": "data", "to": {"size": "2Gi"}},
        "status": {
            "phase": "Copying",
            "plan": {"copiesFiles": True, "target": {"sizeGiB": 2}},
            "source": {"claimUID": "c1", "persistentVolume": "pvc-old", "volumeID": VOLUME},
            "volume": NEW,
        }
        | status,
    }
    return msgspec.convert(body, VolumeMove)


MOVE = a_move()


def document(**spec: Any) -> Document:
    return msgspec.convert({"metadata": {"name": "d"}, "spec": spec}, Document)


def old(**spec: Any) -> Document:
    source = {"driver": DRIVER, "volumeHandle": VOLUME, "fsType": "ext4"}
    return document(**STORED["spec"] | {"csi": source} | spec)


NEW_PV = document(
    capacity={"storage": "2Gi"},
    csi={"driver": DRIVER, "volumeHandle": NEW, "fsType": "xfs"},
    nodeAffinity={"required": {"nodeSelectorTerms": []}},
)


def a_volume_of(end: str, **changes: Any) -> PersistentVolume:
    body = rules.volume_body(MOVE, end, old(), NEW_PV)
    return structs.replace(msgspec.convert(body, PersistentVolume), **changes)


def a_claim_of(end: str, *, bound: bool = True) -> Document:
    body = rules.claim_body(MOVE, end, a_volume_of(end))
    if bound:
        body["metadata"]["annotations"] = {BIND_COMPLETED: "yes"}
    return msgspec.convert(body, Document)


def a_pod(phase: str = "", container: Mapping[str, Any] | None = None, **status: Any) -> CopyPod:
    body = rules.pod_body(MOVE, "image:1", rules.COPY)
    statuses = [{"name": "copy", **container}] if container is not None else []
    told = {"phase": phase, "containerStatuses": statuses} | status
    return msgspec.convert(body | {"status": told}, CopyPod)


def ended(report: CopyReport) -> CopyPod:
    return a_pod("Succeeded", {"state": {"terminated": {"message": encoded(report)}}})


def seen(**changes: Any) -> rules.Seen:
    given: dict[str, Any] = {
        "volumes": {end: a_volume_of(end) for end in rules.COPY.ends},
        "claims": {end: a_claim_of(end) for end in rules.COPY.ends},
        "pod": None,
    }
    return rules.Seen(**given | changes)


NOTHING = seen(volumes=dict.fromkeys(rules.COPY.ends), claims=dict.fromkeys(rules.COPY.ends))


def test_everything_is_made_in_its_order_and_the_pod_last():
    steps: list[Any] = []
    volumes: dict[str, Any] = dict.fromkeys(rules.COPY.ends)
    claims: dict[str, Any] = dict.fromkeys(rules.COPY.ends)
    for _ in range(5):
        step = rules.next_step(MOVE, seen(volumes=volumes, claims=claims))
        steps.append(step)
        match step:
            case rules.MakeVolume(end=end):
                volumes[end] = a_volume_of(end)
            case rules.MakeClaim(end=end):
                claims[end] = a_claim_of(end)

    assert steps == [
        *(rules.MakeVolume("from"), rules.MakeClaim("from")),
        *(rules.MakeVolume("to"), rules.MakeClaim("to")),
        rules.MakePod(),
    ]


def test_the_old_volume_is_mounted_read_only_and_both_are_kept_whatever_becomes_of_their_objects():
    source, target = (
        rules.volume_body(MOVE, end, old(), NEW_PV)["spec"] for end in rules.COPY.ends
    )

    assert source["csi"] == {"driver": DRIVER, "volumeHandle": serial_of(VOLUME), "fsType": "ext4"}
    assert source["mountOptions"] == ["ro", "noatime"]
    assert source["capacity"] == {"storage": "4Gi"}
    assert target["csi"] == NEW_PV.spec["csi"]
    assert "mountOptions" not in target
    for spec in (source, target):
        assert spec["persistentVolumeReclaimPolicy"] == "Retain"
        assert spec["storageClassName"] == ""
        assert spec["nodeAffinity"] == NEW_PV.spec["nodeAffinity"]
    assert a_volume_of("from").is_only_read
    assert not a_volume_of("to").is_only_read


def test_a_volume_in_the_in_tree_form_is_copied_by_the_driver():
    source = rules.volume_body(
        MOVE,
        "from",
        document(
            capacity={"storage": "4Gi"},
            awsElasticBlockStore={"volumeID": f"aws://us-east-1a/{VOLUME}", "fsType": "ext4"},
        ),
        NEW_PV,
    )["spec"]

    assert source["csi"] == {"driver": DRIVER, "volumeHandle": serial_of(VOLUME), "fsType": "ext4"}


@pytest.mark.parametrize("handle", [VOLUME, f"aws:///{VOLUME}", serial_of(VOLUME)])
def test_kubernetes_takes_the_volume_that_is_copied_for_another_one_than_the_claims(handle):
    """By one handle, a pod of the claim would keep the attachment of the copy on its node."""
    claims = old(csi={"driver": DRIVER, "volumeHandle": handle})

    copied = rules.volume_body(MOVE, "from", claims, NEW_PV)["spec"]["csi"]["volumeHandle"]

    assert copied != handle
    assert normalised_handle(copied) == VOLUME


def test_the_pod_may_copy_files_of_all_owners_and_nothing_else():
    body = rules.pod_body(MOVE, "image:1", rules.COPY)
    [container] = body["spec"]["containers"]

    assert body["spec"]["automountServiceAccountToken"] is False
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["args"] == ["copy-files", "/from", "/to"]
    mounts = {each["mountPath"]: each["readOnly"] for each in container["volumeMounts"]}
    assert mounts == {"/from": True, "/to": False}
    assert body["metadata"]["ownerReferences"][0]["uid"] == MOVE.uid


def test_another_pod_of_the_claim_has_the_copy_thrown_away():
    step = rules.next_step(MOVE, seen(strangers=[Use("sneak")]))

    assert isinstance(step, Undo)
    assert "pod sneak came to use claim shop/data" in step.message


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"pod": structs.replace(a_pod(), metadata=old().metadata)}, "pod d"),
        ({"claims": {"from": document(), "to": None}}, "claim d"),
        (
            {"volumes": {"from": a_volume_of("to"), "to": None}},
            "PersistentVolume pvc-u1-to",
        ),
    ],
)
def test_what_has_a_name_of_ours_and_is_not_ours_ends_the_copy(changes: Any, name: str):
    step = rules.next_step(MOVE, seen(**changes))

    assert isinstance(step, Undo)
    assert f"{name} has the name of one of the copy" in step.message


def test_a_claim_that_is_not_bound_yet_gets_no_pod():
    claims = {"from": a_claim_of("from"), "to": a_claim_of("to", bound=False)}

    assert isinstance(rules.next_step(MOVE, seen(claims=claims)), Await)


def test_a_report_of_a_whole_copy_is_written_down():
    report = CopyReport(done=True, files=3, bytes=4096, seconds=1)

    assert rules.next_step(MOVE, seen(pod=ended(report))) == rules.Copied(report)


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        (ended(CopyReport(refused="ask for a larger size")), "not copied: ask for a larger size"),
        (ended(CopyReport()), "nobody says why"),
        (a_pod("Succeeded", {"state": {"terminated": {"message": "no JSON"}}}), "without a report"),
        (a_pod("Succeeded"), "without a report"),
    ],
)
def test_an_end_that_is_no_whole_copy_undoes_the_move(pod: CopyPod, said: str):
    step = rules.next_step(MOVE, seen(pod=pod))

    assert isinstance(step, Undo)
    assert said in step.message


def test_a_pod_that_was_evicted_is_replaced():
    assert rules.next_step(MOVE, seen(pod=a_pod("Failed"))) == rules.RemovePod()


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        (a_pod("Pending"), "is starting"),
        (a_pod("Running", {"state": {"running": {}}}), "copies the files"),
        (
            a_pod(
                "Pending",
                {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            ),
            "cannot start (ImagePullBackOff): no such image",
        ),
        (
            a_pod(
                "Running",
                {
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    "lastState": {"terminated": {"message": "rsync ended"}},
                },
            ),
            "has failed, and is started again: rsync ended",
        ),
        (
            a_pod(
                "Pending",
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes",
                    }
                ],
            ),
            "cannot be scheduled: 0/3 nodes",
        ),
    ],
)
def test_what_the_pod_waits_for_is_told(pod: CopyPod, said: str):
    step = rules.next_step(MOVE, seen(pod=pod))

    assert isinstance(step, Await)
    assert said in step.message


@pytest.mark.parametrize(
    ("pod", "started"),
    [
        (None, False),
        (a_pod("Pending"), False),
        (a_pod("Failed"), False),
        (a_pod("Running"), True),
        (a_pod("Succeeded"), True),
    ],
    ids=["none yet", "cannot start", "turned away by its node", "runs", "has ended"],
)
def test_a_pod_may_take_as_long_as_it_likes_once_it_runs(pod: CopyPod | None, *, started: bool):
    assert rules.has_started(pod) is started


def test_the_end_of_a_copy_waits_for_pod_claims_and_detach():
    whole = seen(pod=a_pod("Succeeded"))
    no_pod = seen()
    no_claims = seen(claims=dict.fromkeys(rules.COPY.ends))

    for there, said in (
        (whole, "pod move-u1"),
        (no_pod, "claim move-u1-from"),
        (no_claims, f"volume {VOLUME} is detached"),
    ):
        left = rules.leftover(MOVE, there)
        assert isinstance(left, Await)
        assert said in left.message
    assert rules.leftover(MOVE, NOTHING) == GoOn()


@pytest.mark.parametrize(
    "changes", [{"uses": [Use("late")]}, {"nodes": ["node-1"]}, {"held": False}]
)
def test_whoever_used_the_old_volume_after_the_copy_has_it_thrown_away(changes: Any):
    given: dict[str, Any] = {"held": True, "uses": (), "nodes": (), "volume": a_volume()}

    assert next_copied_step(MOVE, InUse(**given)) == GoOn()
    assert isinstance(next_copied_step(MOVE, InUse(**given | changes)), Undo)


def test_a_claim_asks_for_no_more_than_its_smaller_volume_has():
    claim = (
        '{"metadata": {"name": "data", "namespace": "shop", "labels": {}, "annotations": {}, '
        '"ownerReferences": []}, "spec": {"resources": {"requests": {"storage": "4Gi"}}}}'
    )

    body = recreated(a_move(claim=claim), claim)

    assert body["spec"]["resources"]["requests"]["storage"] == "2Gi"
