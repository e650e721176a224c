"""A mirror of one kind: what lines of a watch make of it."""

import json
from typing import cast

from tests.bench.hands import Hands
from tests.bench.kwok.keeper import sums
from tests.bench.kwok.mirror import Mirror
from tests.bench.kwok.trouble_rules import troubles


def line(what: str, name: str, volume: str, version: str) -> bytes:
    meta = {"name": name, "resourceVersion": version}
    body = {"metadata": meta, "spec": {"source": {"persistentVolumeName": volume}}}
    return json.dumps({"type": what, "object": body}).encode()


def mirror() -> Mirror:
    return Mirror(cast("Hands", None), "/x", lambda each: each.spec.source.persistent_volume_name)


def test_things_come_change_and_go_with_their_group():
    seen = mirror()
    seen.read(line("ADDED", "csi-1", "pvc-1", "1"))
    seen.read(line("ADDED", "csi-2", "pvc-1", "2"))
    seen.read(line("MODIFIED", "csi-1", "pvc-1", "3"))
    assert {each.key for each in seen.of_group("pvc-1")} == {"csi-1", "csi-2"}

    seen.read(line("DELETED", "csi-1", "pvc-1", "4"))
    seen.read(line("DELETED", "csi-2", "pvc-1", "5"))

    assert not seen.things
    assert not seen.groups
    assert seen.of_group("pvc-1") == []


def test_a_bookmark_is_no_thing():
    seen = mirror()
    seen.read(line("BOOKMARK", "", "", "9"))
    assert not seen.things


def test_metrics_are_summed_over_labels():
    text = (
        "# TYPE ebs_provisioner_queue_depth gauge\n"
        'ebs_provisioner_queue_depth{queue="a"} 3.0\n'
        'ebs_provisioner_queue_depth{queue="b"} 2.0\n'
        "# TYPE ebs_provisioner_leader gauge\n"
        "ebs_provisioner_leader 1.0\n"
    )
    assert sums(text) == {"queue_depth": 5.0, "leader": 1.0}


def test_a_run_has_a_days_kinds_of_trouble_and_ends_in_calm():
    hard = troubles(20.0, "AKIA")

    kinds = [each.does for each in hard]
    assert (kinds.count("kill"), kinds.count("ec2"), kinds.count("outage")) == (3, 2, 1)
    assert [each.at for each in hard] == sorted(each.at for each in hard)
    assert max(each.at + each.lasts_s / 1200 for each in hard) < 0.9
    [crowded] = [each for each in hard if "crowded" in each.what]
    [last] = [each for each in hard if "in the crowd" in each.what]
    assert crowded.at < last.at < crowded.at + crowded.lasts_s / 1200
    assert {fault["key"] for each in hard for fault in each.every} == {"AKIA"}
