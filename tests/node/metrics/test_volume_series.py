"""The series of volumes agree with docs, which is what people make dashboards from."""

import re

from provisioner.node.metrics.collector import LABELS, PREFIX, Measured, series_of
from provisioner.node.metrics.counters import NodeMetrics
from provisioner.node.metrics.nvme_statistics_rules import parse
from tests.documents import section
from tests.node.statistics_pages import page

VOLUME = Measured(("vol-1", "pv-1", "shop", "data"), 5, parse(page()))


def test_docs_have_each_series_of_the_node_and_no_other():
    chapter = section("reference/metrics", "Node plugin")
    rows = re.findall(r"^\| (`.+?) \|", chapter, re.MULTILINE)
    told = {f"ebs_provisioner_node_{name}" for row in rows for name in re.findall("`(.+?)`", row)}
    families = [*NodeMetrics().registry.collect(), *series_of([VOLUME])]

    assert told == {
        f"{each.name}_total" if each.type == "counter" else each.name for each in families
    }
    assert f"{', '.join(LABELS[:-1])} and {LABELS[-1]};" in chapter


def test_all_that_is_known_is_shown():
    assert all(family.samples for family in series_of([VOLUME]))


def test_without_volumes_there_are_no_samples():
    assert not any(family.samples for family in series_of([]))


def test_what_is_not_known_is_left_out_not_zero():
    shown = {family.name for family in series_of([Measured(VOLUME.labels)]) if family.samples}

    assert shown == {f"{PREFIX}unreadable"}
