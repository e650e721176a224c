"""A journal says after any kill what was made."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from provisioner.conformance.cluster.steps import STEPS
from provisioner.conformance.journal import (
    Begun,
    InCluster,
    Journal,
    JournalError,
    is_alive,
    is_clean,
    is_finished,
    is_run,
    new_run,
    stories,
)
from provisioner.conformance.probe import Confirmed, NotRun, Refuted

NOW = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)


def begun(run: str) -> Begun:
    return Begun(run, "1", "http://x", "r", "ra", ("ra", "rb"), (), None, ("a", "b"), NOW)


async def test_a_journal_is_read_as_it_was_written(tmp_path: Path):
    run = new_run(NOW)
    journal = Journal.begin(tmp_path, begun(run))
    first, second = await journal.making("volume", "x"), await journal.making("snapshot", "y")
    await journal.made(first, ["vol-1", "vol-2"])
    await journal.started("a")
    await journal.found("a", Confirmed("seen"))
    await journal.found("b", NotRun("why"))
    journal.close()

    (story,) = stories(tmp_path)
    assert story.begun == begun(run)
    assert story.made == {"vol-1": "volume", "vol-2": "volume"}
    assert story.open.keys() == {second}
    assert story.findings == {"a": Confirmed("seen"), "b": NotRun("why")}
    assert story.started == {"a": 1}
    assert not is_clean(story)
    assert not is_finished(story)


async def test_a_torn_line_is_cut_off_and_written_over(tmp_path: Path):
    run = new_run(NOW)
    Journal.begin(tmp_path, begun(run)).close()
    path = tmp_path / f"{run}.jsonl"
    with path.open("ab") as file:
        file.write(b'{"type":"mak')
    journal = Journal.resume(tmp_path, run)
    await journal.making("volume", "x")
    journal.close()

    (story,) = stories(tmp_path)
    assert story.open.keys() == {1}


async def test_a_run_that_is_swept_is_clean_until_it_makes_something(tmp_path: Path):
    journal = Journal.begin(tmp_path, begun(new_run(NOW)))
    assert is_clean(journal.story)
    await journal.making("volume", "x")
    assert not is_clean(journal.story)
    await journal.swept()
    assert is_clean(journal.story)
    await journal.making("volume", "x")
    assert not is_clean(journal.story)
    journal.close()


async def test_only_one_process_has_a_journal(tmp_path: Path):
    run = new_run(NOW)
    journal = Journal.begin(tmp_path, begun(run))
    assert is_alive(tmp_path, run)
    with pytest.raises(JournalError, match=f"the run {run} is still under way"):
        Journal.resume(tmp_path, run)
    journal.close()
    assert not is_alive(tmp_path, run)
    Journal.resume(tmp_path, run).close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]\n", b'{"type":"started","rule":"a"}\n'])
def test_a_file_that_is_no_journal_is_one_sentence_and_no_run(tmp_path: Path, content: bytes):
    run = new_run(NOW)
    (tmp_path / f"{run}.jsonl").write_bytes(content)

    with pytest.raises(JournalError):
        Journal.resume(tmp_path, run)
    assert list(stories(tmp_path)) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be written"):
        Journal.begin(tmp_path / "file" / "x", begun(new_run(NOW)))


def test_the_id_of_a_run_has_one_form():
    assert is_run(new_run(NOW))
    assert not is_run("../../etc/passwd")
    assert not is_run("*")


async def test_a_run_in_a_cluster_is_clean_once_it_has_left_it(tmp_path: Path):
    run = new_run(NOW)
    journal = Journal.begin(tmp_path, begun(run))
    await journal.entered()
    await journal.found("cluster-write", Confirmed("x"), 7.5)
    journal.close()

    resumed = Journal.resume(tmp_path, run)
    assert resumed.story.in_cluster
    assert not is_clean(resumed.story)
    assert resumed.story.seconds == {"cluster-write": 7.5}
    await resumed.found("cluster-write", Refuted("x"))
    assert resumed.story.seconds == {}
    await resumed.left_cluster()
    resumed.close()
    (story,) = stories(tmp_path)
    assert not story.in_cluster
    assert is_clean(story)


async def test_a_run_in_a_cluster_is_finished_once_each_step_has_a_finding(tmp_path: Path):
    run = new_run(NOW)
    where = InCluster("/kubeconfig", "c", "busybox", "ext4")
    alone = msgspec.structs.replace(begun(run), rules=(), cluster=where)
    journal = Journal.begin(tmp_path, alone)
    for step in STEPS:
        assert not is_finished(journal.story)
        await journal.found(step.name, NotRun("why"))
    assert is_finished(journal.story)
    journal.close()
    (story,) = stories(tmp_path)
    assert story.begun.cluster == where
