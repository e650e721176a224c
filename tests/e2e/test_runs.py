import re

import pytest

from tests.e2e import runs
from tests.e2e.claims import Variation

PREFIX = "External storage External Storage [Driver: ebs.csi.aws.com] [Testpattern: "
GROWS_WHILE_USED = (
    "Dynamic PV (default fs)(allowExpansion)] volume-expand should resize volume when PVC is edited "
    "while pod is using it"
)
GROWS_UNUSED = (
    "Dynamic PV (default fs)(allowExpansion)] volume-expand Verify if offline PVC expansion works",
    (
        "Dynamic PV (default fs)(allowExpansion)] volume-expand should resize volume when PVC is edited "
        "and the pod is re-created on the same node after controller resize is finished"
    ),
    (
        "Dynamic PV (default fs)] provisioning should provision correct filesystem size when restoring "
        "snapshot to larger size pvc"
    ),
)
GROWS_EPHEMERAL = (
    "Generic Ephemeral-volume (default fs) (late-binding)] ephemeral should support expansion of "
    "pvcs created for ephemeral pvcs"
)
MODIFIES = (
    "Dynamic PV (default fs)] volume-modify-stress [Feature:VolumeAttributesClass] multiple pods "
    "should modify volumes with a different volumeAttributesClass [Slow]"
)
SCALE = (
    "Dynamic PV (block volmode)] pvc-deletion-performance should delete volumes at scale within "
    "performance constraints [Slow] [Serial]"
)
SHARED = (
    "Dynamic PV (block volmode)] multiVolume [Slow] should concurrently access the single volume "
    "from pods on different node"
)
SHARED_FILES = SHARED.replace("block volmode", "ext4")
DISRUPTIVE = (
    "Dynamic PV (default fs)] disruptive [Disruptive] [LinuxOnly] Should test that pv written "
    "before kubelet restart is readable after restart."
)
INLINE = "Inline-volume (default fs)] volumes should store data"
PLAIN = "Dynamic PV (default fs)] volumes should store data"
WINDOWS = "Dynamic PV (ntfs)] [Feature:Windows] volumes should store data"


def selected_by(run, test):
    name = PREFIX + test
    skipped = run.skip and re.search(run.skip, name)
    return bool(re.search(run.focus, name)) and not skipped


def runs_of(test, **settings):
    plan = runs.plan(**{"quick": False, "grows_mounted_ext4": False, **settings})
    return [each.name for each in plan if selected_by(each, test)]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (PLAIN, ["plain"]),
        (INLINE, ["plain"]),
        (WINDOWS, []),
        (GROWS_WHILE_USED, ["xfs"]),
        (GROWS_EPHEMERAL, ["xfs"]),
        *((each, ["plain"]) for each in GROWS_UNUSED),
        (MODIFIES, ["immediate"]),
        (SCALE, ["immediate"]),
        (SHARED, ["multi-attach"]),
        (SHARED_FILES, ["plain"]),
        (DISRUPTIVE, ["disruptive"]),
    ],
)
def test_each_test_is_run_with_the_class_that_it_needs(test, expected):
    assert runs_of(test) == expected


@pytest.mark.parametrize("test", [GROWS_WHILE_USED, GROWS_EPHEMERAL])
def test_where_the_kernel_lets_a_mounted_ext4_grow_it_is_run_with_ext4_too(test):
    assert runs_of(test, grows_mounted_ext4=True) == ["plain", "xfs"]


def test_what_stops_kubelets_is_run_last_and_one_at_a_time():
    last = runs.plan(quick=False, grows_mounted_ext4=False)[-1]

    assert (last.name, last.processes) == ("disruptive", 1)


def test_disruptive_tests_of_other_parts_of_kubernetes_are_left_out():
    # The binary has some, from packages that the storage tests import.
    last = runs.plan(quick=False, grows_mounted_ext4=False)[-1]

    assert not re.search(last.focus, "External storage [sig-node] Downward API [Disruptive] x")


def test_the_quick_set_is_one_run_with_the_plain_class():
    (run,) = runs.plan(quick=True, grows_mounted_ext4=False)

    assert run.variation is Variation.PLAIN
    assert selected_by(run, PLAIN)
    assert not any(selected_by(run, each) for each in (SCALE, DISRUPTIVE, GROWS_WHILE_USED))


def test_the_parts_are_all_tests_once_and_the_same_each_time():
    names = [f"test {number}" for number in range(200)]
    parts = [runs.part(names, number, 3) for number in (1, 2, 3)]

    assert sorted(each for part in parts for each in part) == sorted(names)
    assert min(map(len, parts)) > 50
    assert runs.part(reversed(names), 2, 3) == parts[1]


def test_commits_have_each_part_about_as_often_and_each_commit_the_same_one():
    commits = [f"{number:07x}" for number in range(0, 3_000_000, 10_007)]
    chosen = [runs.rotated(commit, 3) for commit in commits]

    assert set(chosen) == {1, 2, 3}
    assert min(map(chosen.count, (1, 2, 3))) > len(commits) / 4
    assert [runs.rotated(commit, 3) for commit in commits] == chosen


def test_a_regular_expression_for_names_matches_just_these():
    names = ["a [b] (c) x", "a.b"]
    focus = runs.exactly(names)

    assert all(re.search(focus, f"suite {each}") for each in names)
    assert not re.search(focus, "suite a [b] (c) x y")
    assert not re.search(focus, "suite aXb")
