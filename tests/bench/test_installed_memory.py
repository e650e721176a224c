"""The bench of the installed pods' memory itself: what it reads, and when it refuses to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from provisioner.sandbox.installed.archive import ImageArchive
from tests.bench import installed_memory
from tests.bench.installed_memory import Pod, Used, checked, deaths, oom_kills, pod_of, used

_MIB = 1 << 20
IMAGE = ImageArchive(Path("dist/x.tar"), "ebs-provisioner", "0.3.0", "sha256:1", "amd64", "a" * 40)


def a_pod(uid: str = "u1", restarts: int = 0, state: dict[str, Any] | None = None) -> Any:
    started = {"running": {"startedAt": "2026-11-24T00:00:05Z"}}
    container = {"restartCount": restarts, "state": started if state is None else state}
    return {
        "metadata": {
            "name": f"pod-{uid}",
            "uid": uid,
            "labels": {"app.kubernetes.io/component": "webhook"},
        },
        "status": {
            "containerStatuses": [container],
            "conditions": [
                {"type": "PodScheduled", "lastTransitionTime": "2026-11-24T00:00:01Z"},
                {"type": "Ready", "lastTransitionTime": "2026-11-24T00:00:09Z"},
            ],
        },
    }


@pytest.mark.parametrize(
    ("now", "peak", "own"),
    [
        ("memory.current", "memory.peak", "anon"),
        ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "total_rss"),
    ],
    ids=["version 2", "version 1"],
)
def test_the_memory_of_a_group_is_read_in_mib(tmp_path: Path, now: str, peak: str, own: str):
    (tmp_path / now).write_text(f"{3 * _MIB}\n")
    (tmp_path / peak).write_text(f"{5 * _MIB}\n")
    (tmp_path / "memory.stat").write_text(f"cache 1\n{own} {2 * _MIB}\n")

    assert used(tmp_path) == Used(own=2.0, now=3.0, peak=5.0)


def test_a_group_that_counts_no_memory_has_no_numbers(tmp_path: Path):
    assert used(tmp_path) is None


def test_a_pod_is_ready_so_many_seconds_after_its_container_started():
    assert pod_of(a_pod()) == Pod("webhook", "u1", 4.0)


def test_a_pod_that_does_not_run_when_the_bench_begins_is_named():
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}

    with pytest.raises(click.ClickException, match=r"pod-u1 does not run: .*CrashLoopBackOff"):
        pod_of(a_pod(state=waiting))


@pytest.mark.parametrize("file", ["memory.events", "memory.oom_control"])
def test_oom_kills_are_counted_in_the_groups_of_the_containers_too(tmp_path: Path, file: str):
    container = tmp_path / "container"
    container.mkdir()
    (tmp_path / file).write_text("oom 3\noom_kill 0\n")
    (container / file).write_text("under_oom 0\noom_kill 2\n")

    assert oom_kills(tmp_path) == 2


def test_a_group_without_oom_kills_has_none(tmp_path: Path):
    (tmp_path / "memory.events").write_text("oom 3\noom_kill 0\n")

    assert oom_kills(tmp_path) == 0


def test_a_group_that_does_not_count_oom_kills_shows_nothing(tmp_path: Path):
    with pytest.raises(click.ClickException, match="does not count OOM kills"):
        oom_kills(tmp_path)


def test_a_pod_that_was_restarted_or_replaced_has_died():
    wanted = [pod_of(a_pod("u1")), pod_of(a_pod("u2"))]

    assert deaths(wanted, [a_pod("u1"), a_pod("u2")]) == []
    assert deaths(wanted, [a_pod("u1", restarts=2), a_pod("u3")]) == [
        "pod-u1 was restarted 2 times",
        "the webhook's pod u2 is gone",
    ]


def test_an_image_of_another_commit_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(installed_memory, "why_other", lambda _: "it is of another commit")

    with pytest.raises(click.ClickException, match="it is of another commit"):
        checked(IMAGE)
    assert "built from aaaa" in capsys.readouterr().out


def test_the_image_that_is_measured_is_named_with_its_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(installed_memory, "why_other", lambda _: "")

    assert checked(IMAGE) is IMAGE
    assert capsys.readouterr().out == f"ebs-provisioner:0.3.0, built from {'a' * 40}\n"
