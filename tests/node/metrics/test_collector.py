"""What is measured of the volumes of a node, by claim; what hangs holds up nothing."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from provisioner import process
from provisioner.node.instance import attachments as attachments_module
from provisioner.node.instance.attachments import AttachmentLookups
from provisioner.node.instance.info import ForeignVolumes
from provisioner.node.instance.metadata import Metadata
from provisioner.node.metrics import collector as collector_module
from provisioner.node.metrics.collector import VolumeCollector, VolumeNames
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.sysfs import SystemDirs
from tests.node.collector_world import GIB, Machine
from tests.node.statistics_pages import histogram, page
from tests.test_probes import fetch, fine

pytest_plugins = ("tests.node.kube_fixtures",)

PREFIX = "ebs_provisioner_node_volume_"


@pytest.fixture
def machine():
    machine = Machine()
    yield machine
    machine.wakes.set()


@pytest.fixture
def attachments(kube):
    return AttachmentLookups(kube)


@pytest.fixture
async def collector(machine, kube, attachments):
    made = VolumeCollector(
        machine,
        VolumeNames(kube, attachments, again_s=0.0),
        statistics_page=machine.page,
        blocking=BlockingCalls(0.2),
        budget_s=2.0,
    )
    yield made
    await made.close()


@pytest.fixture
def samples(collector):
    """Refresh, and give the samples by name and volume."""

    async def samples():
        await collector.refresh()
        registry = CollectorRegistry()
        registry.register(collector)
        found = {}
        for family in registry.collect():
            for each in family.samples:
                extra = each.labels.get("limit_of") or each.labels.get("le") or ""
                key = each.name.removeprefix(PREFIX), each.labels["volume_id"], extra
                found[key] = each
        return found

    return samples


def values(found, volume_id, *names):
    return [found[name, volume_id, ""].value for name in names]


async def test_a_volume_is_measured_under_its_claim(machine, kube_server, samples):
    machine.has("vol-1")
    kube_server.has_volume("vol-1", "pv-1")

    found = await samples()

    assert values(found, "vol-1", "device_bytes", "unreadable") == [5 * GIB, 0]
    assert found["device_bytes", "vol-1", ""].labels == {
        "volume_id": "vol-1",
        "persistentvolume": "pv-1",
        "namespace": "shop",
        "claim": "pv-1-claim",
    }


async def test_a_volume_has_its_size_and_statistics(machine, kube_server, samples):
    machine.has("vol-1")
    machine.pages["/dev/nvme1n1"] = page(counters=(1, 2, 3, 4, *(10**6,) * 6, 11))
    kube_server.has_volume("vol-1", "pv-1")

    found = await samples()

    names = ("reads_total", "writes_total", "read_bytes_total", "written_bytes_total")
    assert values(found, "vol-1", *names) == [1, 2, 3, 4]
    assert values(found, "vol-1", "read_seconds_total", "write_seconds_total") == [1, 1]
    assert values(found, "vol-1", "queue_length", "device_bytes") == [11, 5 * GIB]


async def test_it_is_told_whose_limit_was_exceeded(machine, kube_server, samples):
    machine.has("vol-1")
    times = (5, 6, 7_000_000, 8_000_000, 9_000_000, 10_000_000)
    machine.pages["/dev/nvme1n1"] = page(counters=(1, 2, 3, 4, *times, 0))
    kube_server.has_volume("vol-1", "pv-1")

    found = await samples()

    assert {key[0::2]: each.value for key, each in found.items() if "exceeded" in key[0]} == {
        ("exceeded_iops_seconds_total", "volume"): 7,
        ("exceeded_throughput_seconds_total", "volume"): 8,
        ("exceeded_iops_seconds_total", "instance"): 9,
        ("exceeded_throughput_seconds_total", "instance"): 10,
    }


async def test_latencies_are_a_histogram_with_a_sum(machine, kube_server, samples):
    machine.has("vol-1")
    bins = histogram((0, 256, 5), (256, 1000, 7), (1000, 2**64 - 1, 1))
    machine.pages["/dev/nvme1n1"] = page(counters=(0,) * 4 + (2_500_000,) + (0,) * 6, reads=bins)
    kube_server.has_volume("vol-1", "pv-1")

    found = await samples()

    name = "read_latency_seconds"
    buckets = {key[2]: each.value for key, each in found.items() if key[0] == f"{name}_bucket"}
    assert buckets == {"0.000256": 5, "0.001": 12, "+Inf": 13}
    assert values(found, "vol-1", f"{name}_count", f"{name}_sum") == [13, 2.5]
    assert values(found, "vol-1", "write_latency_seconds_count") == [0]


async def test_of_many_bounds_a_few_are_shown_and_their_counts_are_exact(
    machine, kube_server, samples
):
    machine.has("vol-1")
    bins = histogram(*((each * 100, each * 100 + 100, 1) for each in range(64)))
    machine.pages["/dev/nvme1n1"] = page(writes=bins)
    kube_server.has_volume("vol-1", "pv-1")

    found = await samples()

    name = "write_latency_seconds_bucket"
    buckets = {key[2]: each.value for key, each in found.items() if key[0] == name}
    assert buckets == {"0.0003": 3, "0.0005": 5, "0.001": 10, "0.002": 20, "0.004": 40, "+Inf": 64}


async def test_a_page_that_makes_no_sense_is_told_and_the_rest_is_shown(
    machine, kube_server, samples, capsys
):
    machine.has("vol-1")
    machine.pages["/dev/nvme1n1"] = page(reads=histogram(told=99))
    kube_server.has_volume("vol-1", "pv-1")

    for _ in range(2):
        found = await samples()

    assert values(found, "vol-1", "unreadable", "device_bytes") == [1, 5 * GIB]
    assert ("reads_total", "vol-1", "") not in found
    assert capsys.readouterr().out.count("at most 64 bins, not 99") == 1


async def test_volumes_of_others_are_not_measured(machine, samples):
    machine.has("vol-root")

    assert await samples() == {}
    assert machine.asked == []


async def test_a_volume_that_hangs_holds_up_no_other_and_no_scrape(machine, kube_server, samples):
    for each in ("vol-1", "vol-2", "vol-3"):
        machine.has(each)
        kube_server.has_volume(each, f"pv-{each}")
    machine.pages = {f"/dev/nvme{each}n1": page() for each in (1, 2, 3)}
    machine.hanging = {"/dev/nvme2n1"}

    for _ in range(3):
        async with asyncio.timeout(30.0):
            found = await samples()

    assert [found["unreadable", each, ""].value for each in ("vol-1", "vol-2", "vol-3")] == [
        0,
        1,
        0,
    ]
    assert values(found, "vol-3", "reads_total") == [1]
    assert ("reads_total", "vol-2", "") not in found
    assert values(found, "vol-2", "device_bytes") == [5 * GIB]
    assert machine.asked.count("/dev/nvme2n1") == 1


async def test_a_volume_that_comes_back_is_measured_again(machine, kube_server, samples):
    machine.has("vol-1")
    kube_server.has_volume("vol-1", "pv-1")
    machine.pages["/dev/nvme1n1"] = page()
    machine.hanging = {"/dev/nvme1n1"}
    await samples()
    machine.hanging.clear()
    machine.wakes.set()

    assert values(await samples(), "vol-1", "unreadable", "reads_total") == [0, 1]


async def test_a_volume_that_goes_is_shown_no_more(machine, kube_server, samples):
    machine.has("vol-1")
    kube_server.has_volume("vol-1", "pv-1")
    await samples()
    machine.disks.clear()

    assert await samples() == {}


async def test_names_are_asked_once(machine, kube_server, samples, monkeypatch):
    machine.has("vol-root")
    machine.has("vol-1")
    kube_server.has_volume("vol-1", "pv-1")
    began_s, hours = time.monotonic(), 0
    clock = SimpleNamespace(monotonic=lambda: began_s + hours * 3600.0)
    for each in (attachments_module, collector_module):
        monkeypatch.setattr(each, "time", clock)
    await samples()
    assert len(kube_server.asked) == 4  # the Node too: it may name the root volume otherwise

    for hours in range(6):  # noqa: B007 -- the clock reads it
        await samples()
    assert len(kube_server.asked) == 4

    hours = 6
    await samples()
    assert len(kube_server.asked) == 6  # the root volume, once more


async def test_a_scrape_asks_nothing_of_what_is_known_to_be_foreign(
    machine, kube, kube_server, attachments, samples
):
    """The kubelet's question how many volumes fit has had the root volume asked for."""
    machine.has("vol-root")
    kube_server.has_node()
    imds = Metadata(None, kube, SystemDirs())
    foreign = ForeignVolumes(kube, attachments, imds, machine.volumes)
    assert await foreign.count() == 1
    kube_server.asked.clear()

    for _ in range(3):
        assert await samples() == {}
        assert await foreign.count() == 1

    assert kube_server.asked == []


async def test_a_foreign_volume_is_shown_once_the_kubelet_stages_it(
    machine, kube_server, attachments, samples
):
    machine.has("vol-1")
    assert await samples() == {}
    kube_server.has_volume("vol-1", "pv-1")
    assert await samples() == {}

    attachments.ask_again("vol-1")

    assert values(await samples(), "vol-1", "device_bytes") == [5 * GIB]


async def test_a_foreign_volume_that_was_detached_is_asked_for_again(machine, kube_server, samples):
    machine.has("vol-root")
    machine.has("vol-1")
    assert await samples() == {}
    del machine.disks["vol-1"]
    await samples()
    machine.has("vol-1")
    kube_server.has_volume("vol-1", "pv-1")

    assert values(await samples(), "vol-1", "device_bytes") == [5 * GIB]


async def test_what_was_named_is_shown_while_the_api_server_is_away(machine, kube_server, samples):
    machine.has("vol-1")
    kube_server.has_volume("vol-1", "pv-1")
    await samples()
    kube_server.tokens.clear()
    machine.has("vol-2")

    found = await samples()
    assert {volume_id for _, volume_id, _ in found} == {"vol-1"}

    kube_server.tokens = {"first"}
    kube_server.has_volume("vol-2", "pv-2")
    found = await samples()
    assert {volume_id for _, volume_id, _ in found} == {"vol-1", "vol-2"}


async def test_an_inline_volume_is_shown_without_a_claim(machine, kube_server, samples):
    machine.has("vol-1")
    kube_server.has_attachment("vol-1", "")

    assert (await samples())["device_bytes", "vol-1", ""].labels["claim"] == ""


async def test_a_machine_that_cannot_tell_goes_by_what_kubernetes_says(
    machine, kube_server, samples
):
    machine.is_blind = True
    machine.has("vol-1", is_nvme=False)
    kube_server.has_volume("vol-1", "pv-1")
    kube_server.has_node(status={"volumesInUse": ["kubernetes.io/csi/ebs.csi.aws.com^vol-1"]})

    assert values(await samples(), "vol-1", "device_bytes") == [5 * GIB]
    assert "/dev/nvme1n1" not in machine.asked


async def test_a_volume_detached_by_force_is_unreadable_until_kubernetes_takes_it_off_the_node(
    machine, kube_server, samples
):
    for number in ("1", "2"):
        machine.has(f"vol-{number}")
        kube_server.has_volume(f"vol-{number}", f"pv-{number}")
    kube_server.has_node(status={"volumesInUse": ["kubernetes.io/csi/ebs.csi.aws.com^vol-1"]})
    await samples()
    del machine.disks["vol-1"]
    del machine.disks["vol-2"]
    machine.has("vol-3")
    kube_server.has_volume("vol-3", "pv-3")

    found = await samples()

    assert found["unreadable", "vol-1", ""].value == 1
    assert ("unreadable", "vol-2", "") not in found  # was unmounted before
    kube_server.has_node(status={})
    assert ("unreadable", "vol-1", "") not in await samples()


async def test_a_volume_that_goes_while_the_node_cannot_be_read_is_judged_by_the_last_list(
    machine, kube_server, samples
):
    """It may have been detached by force, or properly: what was known last says the former."""
    machine.has("vol-1")
    machine.has("vol-2")
    for number in ("1", "2"):
        kube_server.has_volume(f"vol-{number}", f"pv-{number}")
    in_use = {"volumesInUse": ["kubernetes.io/csi/ebs.csi.aws.com^vol-1"]}
    kube_server.has_node(status=in_use)
    await samples()
    del machine.disks["vol-1"]
    assert (await samples())["unreadable", "vol-1", ""].value == 1  # the list is read here
    kube_server.has_node(status={})
    kube_server.tokens.clear()

    assert (await samples())["unreadable", "vol-1", ""].value == 1

    kube_server.tokens = {"first"}
    assert ("unreadable", "vol-1", "") not in await samples()
    assert ("unreadable", "vol-2", "") in await samples()


async def test_a_scrape_sees_what_is_true_now(machine, kube_server, collector):
    registry = CollectorRegistry()
    registry.register(collector)
    machine.has("vol-1")
    machine.pages["/dev/nvme1n1"] = page(reads=histogram((0, 256, 5)))
    kube_server.has_volume("vol-1", "pv-1")

    async with process.serve(
        "127.0.0.1:0", registry=registry, healthy=fine, ready=fine, measure=collector.refresh
    ) as port:
        _, text = await fetch(port, "/metrics")

    families = {each.name: each.type for each in text_string_to_metric_families(text)}
    assert families[f"{PREFIX}device_bytes"] == "gauge"
    assert families[f"{PREFIX}reads"] == "counter"
    assert families[f"{PREFIX}read_latency_seconds"] == "histogram"
