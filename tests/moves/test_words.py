"""Plans, progress and interference as they are told."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from provisioner.inspect.terminal import screen
from provisioner.model.document import Document
from provisioner.model.volume_move import STAGES, MovePlan, Phase, VolumeMove
from provisioner.moves import interference_rules, plan_words, progress_words
from provisioner.moves.display import Display
from provisioner.moves.interference_rules import Owner, ResourceQuota
from tests.moves.fake_cluster import PLANNED, SHAPE


def a_move(phase: str = "", **status: Any) -> VolumeMove:
    meta = {"name": "mine", "namespace": "shop", "uid": "u"}
    spec = {"claimName": "data", "to": {"zone": "us-east-1b"}}
    body = {"metadata": meta, "spec": spec, "status": PLANNED | {"phase": phase} | status}
    return msgspec.convert(body, VolumeMove)


def told(move: VolumeMove, *stops: str, interferes: tuple[str, ...] = ()) -> str:
    return "\n".join(plan_words.lines(move, stops, interferes, width=80))


def test_a_plan_compares_what_is_there_with_what_comes():
    target = SHAPE | {"encrypted": True, "kmsKeyID": "alias/shop", "sizeGiB": 40, "iops": 4000}
    lines = told(a_move("Planned", plan=PLANNED["plan"] | {"target": target})).splitlines()

    cells = [line.split("   ") for line in lines]
    rows = {row[0].strip(): [each.strip() for each in row[1:] if each.strip()] for row in cells}
    assert rows["volume"] == ["vol-1", "a new one"]
    assert rows["size"] == ["20 GiB", "40 GiB"]
    assert rows["IOPS"] == ["-", "4000"]
    assert rows["encrypted"] == ["no", "yes"]
    assert rows["key"] == ["-", "alias/shop"]
    assert "throughput" not in rows


def test_a_plan_says_what_stops_and_what_would_interfere():
    plan = PLANNED["plan"] | {"pods": ["web-0", "web-1"]}
    text = told(a_move("Planned", plan=plan), "to stop: kubectl", interferes=("Argo CD keeps it",))

    assert "Pods web-0 and web-1 stop for as long as" in text
    assert "\n  - to stop: kubectl\n" in text
    assert "This would interfere:\n  - Argo CD keeps it" in text
    assert "No pod uses the claim now" in told(a_move("Planned"))


@pytest.mark.parametrize(
    ("policy", "says"),
    [("Delete", "then it is deleted"), ("Retain", "and after it"), ("Recycle", "policy Recycle")],
)
def test_a_plan_says_what_becomes_of_the_old_volume(policy: str, says: str):
    source = PLANNED["source"] | {"reclaimPolicy": policy}

    assert says in told(a_move("Planned", source=source))


def test_a_plan_cannot_write_to_the_terminal():
    plan = PLANNED["plan"] | {"notes": ["a\x1b[2Jb"]}

    assert "\x1b" not in told(a_move("Planned", plan=plan))


def test_the_owner_of_pods_is_stopped_and_started_by_commands_to_copy():
    owners = [
        Owner("StatefulSet", "web", 3),
        Owner("Deployment", "api", 0),
        Owner("Rollout", "x"),
        Owner("Pod", "toolbox"),
    ]

    sentences = [*interference_rules.how_to_stop(owners, "shop")]
    scale = "kubectl -n shop scale"

    assert sentences == [
        f"to stop: {scale} statefulset web --replicas=0; afterwards: {scale} statefulset web --replicas=3",
        f"to stop: {scale} deployment api --replicas=0; afterwards: {scale} deployment api --replicas=1",
        "Rollout x has pods that use the claim: stop it, or delete it",
        "nobody makes pod toolbox again: delete it, and create it afterwards",
    ]


@pytest.mark.parametrize(
    ("meta", "keeper"),
    [
        ({"annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/StatefulSet:web"}}, "Argo"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "shop"}}, "Flux"),
        ({"labels": {"app.kubernetes.io/instance": "shop"}}, ""),
    ],
)
def test_whoever_keeps_the_owner_as_it_is_would_interfere(meta: dict[str, Any], keeper: str):
    body = {"metadata": {"name": "web"} | meta, "spec": {"replicas": 3}}
    found = interference_rules.owner(msgspec.convert(body, Document), "StatefulSet")
    sentences = [*interference_rules.of_owners([found])]

    assert found.replicas == 3
    assert [each.startswith(keeper) for each in sentences] == ([True] if keeper else [])


def test_a_daemon_set_starts_its_pods_again():
    (sentence,) = interference_rules.of_owners([Owner("DaemonSet", "agent")])

    assert "starts its pods again at once" in sentence


BY_CLASS = "slow.storageclass.storage.k8s.io/"


@pytest.mark.parametrize(
    ("hard", "used", "target", "told_of"),
    [
        ({"requests.storage": "50Gi"}, {"requests.storage": "45Gi"}, {"sizeGiB": 30}, 1),
        ({"requests.storage": "50Gi"}, {"requests.storage": "40Gi"}, {"sizeGiB": 30}, 0),
        ({"requests.storage": "20Gi"}, {"requests.storage": "20Gi"}, {}, 0),
        ({f"{BY_CLASS}persistentvolumeclaims": "0"}, {}, {"storageClassName": "slow"}, 1),
        ({f"{BY_CLASS}requests.storage": "20Gi"}, {}, {"storageClassName": "slow"}, 0),
        ({"count/pods": "0"}, {}, {"sizeGiB": 900}, 0),
    ],
)
def test_a_quota_without_room_for_the_new_claim_would_interfere(
    hard: dict[str, str], used: dict[str, str], target: dict[str, Any], told_of: int
):
    status = {"metadata": {"name": "cap"}, "status": {"hard": hard, "used": used}}
    plan = msgspec.convert({"source": SHAPE, "target": SHAPE | target}, MovePlan)
    quota = msgspec.convert(status, ResourceQuota)
    sentences = [*interference_rules.of_quotas([quota], plan)]

    assert len(sentences) == told_of
    assert all("ResourceQuota cap allows" in each for each in sentences)


def test_every_phase_has_a_sentence_or_an_end():
    for phase in Phase:
        move = a_move(phase.value)
        says = progress_words.line(move).partition(": ")[2]
        assert progress_words.ending(move) is not None or len(says.split()) > 2, phase


def test_the_way_is_that_of_a_move_that_meets_nothing():
    steps = [progress_words.step(a_move(phase.value)) for phase in Phase]

    assert "[1/6] Held" in steps
    assert "[6/6] Done" in steps
    assert "Aborting" in steps
    assert progress_words.step(a_move("PhaseOfTheFuture")) == "PhaseOfTheFuture"


def test_what_is_late_is_what_no_abort_follows():
    late = {each for each in Phase if progress_words.is_late(a_move(each.value))}

    assert late == {Phase.SWAPPING, Phase.CLEANING}
    assert not any(Phase.ABORTING in STAGES[each].then for each in late)
    assert not progress_words.is_late(a_move("PhaseOfTheFuture"))


def test_a_bar_is_as_full_as_the_snapshot():
    for percent, full in ((0, 0), (43, 8), (100, 20), (900, 20)):
        line = progress_words.bar_line(
            a_move("Snapshotting", progressPercent=percent, message="snap-1"), 3700.0
        )
        assert (line.count("█"), line.count("░")) == (full, 20 - full)
        assert f"{percent} % 1:01:40  snap-1" in line
    assert "█" not in progress_words.bar_line(a_move("Held"), 61.0)


def test_a_terminal_has_one_line_that_changes_and_others_have_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    Display().draw("43 %")
    assert capsys.readouterr().out == ""

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(screen, "width", lambda: 8)
    display = Display()
    display.draw("a long\x1b line")
    display.say("done")
    assert capsys.readouterr().out == "\r\x1b[Ka long…\r\x1b[Kdone\n"
    display.clear()
    assert capsys.readouterr().out == ""


def test_colours_are_for_terminals_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    Display().say("done", "green")
    assert capsys.readouterr().out == "done\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    Display().say("done", "green")
    assert capsys.readouterr().out == "done\n"
