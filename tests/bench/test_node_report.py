"""What the table says of the node plugin, and the arithmetic behind it."""

from __future__ import annotations

import json

import pytest

from tests.bench import node_numbers, report
from tests.bench.node_numbers import Machine, Mounted, Mounting, Node, Pods, Traffic, Way
from tests.bench.report import Results

MIB = 1024**2
VOLUME, OTHER = "vol-0123456789abcdef0", "vol-0fedcba9876543210"


def a_way(*seconds: float) -> Way:
    return Way(list(seconds), [Traffic(300, 32 * MIB, 30, 68 * MIB)] * len(seconds))


def a_machine(*, resident_mib: float = 61.0, slowest_s: float = 0.3) -> Machine:
    new = Mounting(
        file_system="ext4",
        is_new=True,
        ours=a_way(0.1, 0.2, slowest_s),
        floor=a_way(0.05, 0.1, 0.2),
        steps_s={"mkfs": 0.009},
    )
    return Machine(
        volumes=25,
        starts_s=[0.4, 0.5, 0.9],
        empty_mib=59.0,
        resident_mib=resident_mib,
        peak_mib=64.2,
        scrapes=5,
        scrape_cpu_s=0.012,
        idle_s=30.0,
        idle_cpu_s=0.02,
        mountings=[new],
    )


def some_pods(
    rpcs_s: list[float], attached_s: list[float], failed: int = 0, *, is_new: bool = False
) -> Pods:
    return Pods(is_new, rpcs_s, attached_s, failed)


def row(text: str, begin: str) -> list[str]:
    [found] = [line for line in text.splitlines() if line.startswith(f"| {begin}")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def told(machine: Machine | None, *pods: Pods) -> str:
    why_no_machine = "" if machine else "it mounts real volumes, which takes root"
    why_no_pods = "" if pods else "a real node takes containerd"
    node = Node(machine, why_no_machine, pods, why_no_pods, 0.4)
    return report.markdown(Results("a machine", 100, node=node))


def line(event: str, method: str, volume: str, seconds: float, at: str = "00:00:00") -> str:
    facts = {"event": event, "method": method, "volume": volume, "seconds": seconds}
    return json.dumps({**facts, "timestamp": f"1970-01-02T{at}.500000Z"}) + "\n"


def test_a_mount_is_told_by_median_and_slowest_beside_its_floor() -> None:
    text = told(a_machine())

    found = row(text, "NodeStage + NodePublish, new ext4, 3 of 4 GiB")
    assert found == ["≤ 2 s", "0.200 s, 0.300 s", "0.100 s, 0.200 s", "2.0", ""]
    assert row(text, "start of the process")[1] == "0.500 s, 0.900 s of 3"
    assert row(text, "idle, 25 volumes")[1] == "40 ms CPU a minute"
    assert "32.0 MiB in 300 reads and 68.0 MiB in 30 writes (0.80 s)" in text


def test_what_is_too_heavy_or_too_slow_is_said_to_be_missed() -> None:
    too_slow = some_pods([0.1, 0.6], [1.0, 1.2])
    text = told(a_machine(resident_mib=65.1, slowest_s=2.1), too_slow)

    assert row(text, "memory, 25 volumes")[-1] == "**missed**"
    assert row(text, "NodeStage + NodePublish")[-1] == "**missed**"
    assert row(text, "the same on a real kubelet, existing ext4, 2 pods")[-1] == "**missed**"
    assert "missed" not in told(a_machine(), some_pods([0.1, 0.5], [1.0, 1.2]))


def test_what_cannot_be_measured_is_told_with_its_reason() -> None:
    text = told(None)

    assert "the calls by themselves, because it mounts real volumes, which takes root." in text
    assert "Not measured: pods on a real kubelet, because a real node takes containerd." in text
    assert "| what |" not in text


def test_a_pods_waits_are_told_apart_from_our_calls() -> None:
    text = told(None, some_pods([0.1, 0.2, 0.3], [0.8, 0.9, 1.9], 1, is_new=True))

    assert row(text, "the same on a real kubelet, new ext4, 3 pods")[1] == "0.200 s, 0.300 s"
    assert "new 0.900 s, 1.900 s (failed calls: 1)" in text


def test_a_log_tells_how_long_a_volume_took_and_when_it_was_mounted() -> None:
    lines = [
        "a line of the interpreter\n",
        line("not answered", "NodeStageVolume", VOLUME, 3.0),
        line("answered", "NodeStageVolume", VOLUME, 0.5),
        line("answered", "NodeStageVolume", OTHER, 0.25),
        line("answered", "NodePublishVolume", VOLUME, 0.25, "00:00:10"),
        line("answered", "NodePublishVolume", OTHER, 0.25, "00:00:20"),
        line("answered", "NodePublishVolume", VOLUME, 9.0, "00:00:30"),  # asked once more
        '{"event": "answe',  # being written
    ]

    found, failed = node_numbers.mounted(lines)

    day_s = 86400.0
    assert found == {VOLUME: Mounted(0.75, day_s + 10.5), OTHER: Mounted(0.5, day_s + 20.5)}
    assert failed == 1
    pods = node_numbers.pods(found, {VOLUME: day_s + 10, OTHER: day_s + 19}, failed, is_new=True)
    assert pods == some_pods([0.75, 0.5], [0.5, 1.5], 1, is_new=True)


def test_no_pod_is_left_out_of_the_figures() -> None:
    found = {VOLUME: Mounted(0.5, 10.0)}

    with pytest.raises(ValueError, match=f"not both: {OTHER}"):
        node_numbers.pods(found, {VOLUME: 9.0, OTHER: 9.0}, 0, is_new=True)


def test_traffic_is_read_from_the_kernels_count_of_sectors() -> None:
    before = Traffic.of("  10   0   80  5   3  0   24 1 0 9 9 0 0 0 0 1 1\n")
    after = Traffic.of("  12   0 2128  5   4  0 2072 1 0 9 9 0 0 0 0 1 1\n")

    assert after.since(before) == Traffic(2, MIB, 1, MIB)
