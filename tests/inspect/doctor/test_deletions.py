"""What an ordinary deletion looks like halfway fails no check."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import structs

from provisioner.inspect.doctor.check_rules import Verdict
from provisioner.model.persistent_volume import PlacedStatus
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import checked, with_cloud, with_cluster
from tests.inspect.doctor.test_checks import a_volume


@pytest.mark.parametrize(
    ("phase", "policy", "verdict"),
    [
        ("Released", "Delete", Verdict.OK),
        ("Failed", "Delete", Verdict.OK),
        ("Released", "Retain", Verdict.FAILED),
        ("Bound", "Delete", Verdict.FAILED),
    ],
)
def test_the_volume_goes_before_its_released_persistent_volume(
    phase: str, policy: str, verdict: Verdict
):
    going = a_volume("pv-2", "vol-2")
    going = structs.replace(
        going,
        spec=structs.replace(going.spec, persistent_volume_reclaim_policy=policy),
        status=PlacedStatus(phase=phase),
    )
    seen = with_cluster(volumes=[e.persistent_volume(), going])

    assert checked(seen)["volumes-exist"].verdict is verdict


@pytest.mark.parametrize(("minutes", "verdict"), [(1, Verdict.OK), (11, Verdict.FAILED)])
def test_the_instance_ends_before_its_deleted_node(minutes: float, verdict: Verdict):
    found = e.node()
    since = f"{e.NOW - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
    meta = structs.replace(found.metadata, deletion_timestamp=since)
    ends = {e.INSTANCE: e.instance(state="shutting-down")}
    seen = with_cloud(instances=ends)
    going = with_cluster(nodes=[structs.replace(found, metadata=meta)])

    assert checked(seen)["instances"].verdict is Verdict.FAILED
    assert checked(replace(going, cloud=seen.cloud))["instances"].verdict is verdict
