"""Plans, progress and owners as they are told."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from provisioner.inspect.terminal import screen
from provisioner.model.document import Document
from provisioner.model.driver import AUTO_MODE_DRIVER, EBS_DRIVER, IN_TREE_DRIVER
from provisioner.model.volume_move import ABORTABLE, Phase, VolumeMove
from provisioner.moves import owner_rules, plan_words, progress_words
from provisioner.moves.display import Display
from provisioner.moves.owner_rules import Owner
from tests.moves.fake_cluster import PLANNED, SHAPE


def a_move(phase: str = "", spec: Any = None, **status: Any) -> VolumeMove:
    meta = {"name": "mine", "namespace": "shop", "uid": "u"}
    wish = {"claimName": "data", "to": {"zone": "us-east-1b"}}
    body = {
        "metadata": meta,
        "spec": wish | (spec or {}),
        "status": PLANNED | {"phase": phase} | status,
    }
    return msgspec.convert(body, VolumeMove)


def told(move: VolumeMove, *stops: str) -> str:
    return "\n".join(plan_words.lines(move, stops, width=80))


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


def test_a_move_that_takes_snapshots_first_has_one_phase_more():
    plan = PLANNED["plan"] | {"warms": True}
    warming = a_move("Warming", plan=plan, progressPercent=40, message="pods go on")

    assert progress_words.line(warming) == "[1/7] Warming: pods go on 40 %"
    assert progress_words.step(a_move("Held", plan=plan)) == "[2/7] Held"
    assert progress_words.step(a_move("Held")) == "[1/6] Held"
    checking = a_move("Checking", plan=PLANNED["plan"] | {"checks": True})
    assert progress_words.line(checking) == "[4/7] Checking: a pod checks the new volume"
    assert not progress_words.is_late(warming)


def test_a_plan_says_what_stops_and_by_whom():
    plan = PLANNED["plan"] | {"pods": ["web-0", "web-1"]}
    text = told(a_move("Planned", plan=plan), "to stop: kubectl")

    assert "Pods web-0 and web-1 stop for as long as" in text
    assert "\n  - to stop: kubectl\n" in text
    assert "The move waits until you stop them:" in text
    assert "No pod uses the claim now" in told(a_move("Planned"))


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("Delete", "then the volume and its data are"),
        ("Retain", "keeps vol-1 until you delete"),
        ("Recycle", "policy Recycle"),
    ],
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

    sentences = [*owner_rules.how_to_stop(owners, "shop")]
    scale = "kubectl -n shop scale"

    assert sentences == [
        f"to stop: {scale} statefulset web --replicas=0; afterwards: {scale} statefulset web --replicas=3",
        f"to stop: {scale} deployment api --replicas=0; afterwards: {scale} deployment api --replicas=1",
        "Rollout x has pods that use the claim: stop it, or delete it",
        "nobody makes pod toolbox again: delete it, and create it afterwards",
    ]


def test_a_daemon_set_is_deleted_as_it_starts_its_pods_again():
    (sentence,) = owner_rules.how_to_stop([Owner("DaemonSet", "agent")], "shop")

    assert "starts its pods again at once" in sentence


def test_the_replicas_of_an_owner_are_those_that_it_asks_for():
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 3}}

    assert owner_rules.owner(msgspec.convert(body, Document), "StatefulSet").replicas == 3


SCALES: dict[str, Any] = {"claimName": "data", "consumers": {"policy": "ScaleDown"}}
STOPS = "StatefulSet web is scaled from 3 to 1, and back after the swap"


def test_a_plan_that_scales_down_names_the_owners_and_asks_for_no_commands():
    plan = PLANNED["plan"] | {"pods": ["web-1", "web-2"], "stops": [STOPS]}
    text = told(a_move("Planned", SCALES, plan=plan))

    assert "Pods web-1 and web-2 stop for as long as a snapshot" in text
    assert f"The move stops them:\n  - {STOPS}\n" in text
    assert "you stop" not in text
    assert "start its pods again" not in progress_words._done(a_move("Done", SCALES, plan=plan))
    assert "start its pods again" in progress_words._done(a_move("Done", plan=plan))


def test_a_plan_of_another_form_says_that_the_volume_stays():
    then, now = ({"driver": each} for each in (EBS_DRIVER, IN_TREE_DRIVER))
    shapes = {"source": SHAPE | now, "target": SHAPE | then}
    plan = PLANNED["plan"] | shapes | {"keepsVolume": True, "pods": ["web-0"]}
    text = told(a_move("Planned", plan=plan), "to stop: kubectl")

    rows = [line.split() for line in text.splitlines()]
    assert ["volume", "vol-1", "the", "same"] in rows
    assert ["form", "in-tree", "CSI"] in rows
    assert "nothing is copied" in text
    assert "for as long as the exchange takes, which is seconds." in text
    assert "PersistentVolume pv-1 is kept for 168h, then it is deleted; the volume stays" in text
    assert "snapshot" not in text


@pytest.mark.parametrize(
    ("driver", "rows"), [(AUTO_MODE_DRIVER, [["driver", EBS_DRIVER, AUTO_MODE_DRIVER]]), ("", [])]
)
def test_a_plan_names_the_driver_that_takes_the_volume_over(driver: str, rows: Any):
    shapes = {
        "source": SHAPE | {"driver": EBS_DRIVER},
        "target": SHAPE | {"driver": driver or EBS_DRIVER, "storageClassName": "other"},
    }
    text = told(a_move("Planned", plan=PLANNED["plan"] | shapes | {"keepsVolume": True}))

    told_rows = [line.split() for line in text.splitlines()]
    assert [each for each in told_rows if each[:1] in (["form"], ["driver"])] == rows
    assert ["class", "fast", "other"] in told_rows


def test_what_became_of_an_owner_is_said_once_it_is_known():
    web = {"kind": "StatefulSet", "name": "web", "uid": "w", "scaleTo": 1}
    scaled = web | {"replicas": 3}

    def said(*consumers: Any) -> list[str]:
        return [*progress_words.consumers(a_move("Held", consumers=list(consumers)))]

    assert said() == said(web) == []
    assert said(scaled) == ["StatefulSet web is scaled from 3 to 1"]
    back = said(scaled | {"isBack": True})
    assert back[:1] == said(scaled)
    assert back[1].startswith("StatefulSet web is scaled back to 3")


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
    assert not late & ABORTABLE
    assert not progress_words.is_late(a_move("PhaseOfTheFuture"))


def test_a_bar_is_as_full_as_the_snapshot():
    for percent, full in ((0, 0), (43, 8), (100, 20), (900, 20)):
        line = progress_words.bar_line(
            a_move("Snapshotting", progressPercent=percent, message="snap-1"), 3700.0
        )
        assert (line.count("█"), line.count("░")) == (full, 20 - full)
        assert f"{percent} % 1:01:40  snap-1" in line
    counted = a_move("Snapshotting", progressPercent=43, totalBytes=12 * 2**30, message="snap-1")
    assert " 43 % of 12Gi 1:01:40  snap-1" in progress_words.bar_line(counted, 3700.0)
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
