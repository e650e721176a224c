"""What an ordinary deletion looks like halfway fails no check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import structs

from provisioner.inspect.doctor import volume_rules
from provisioner.inspect.doctor.check_rules import Verdict, exit_status
from provisioner.model.persistent_volume import PlacedStatus
from provisioner.model.volume import Volume
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import a_volume, checked, with_cloud, with_cluster


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


def test_what_is_missing_is_found_without_a_walk_through_all_volumes_for_each():
    class Walked(dict[str, Volume]):
        walks = 0

        def __iter__(self) -> Iterator[str]:
            self.walks += 1
            return super().__iter__()

    volumes = Walked({e.VOLUME: e.volume()})
    owners = [e.persistent_volume(), *(a_volume(f"pv-{n}", f"vol-{n}") for n in range(2, 9))]
    seen = replace(with_cluster(volumes=owners), cloud=replace(e.CLOUD, volumes=volumes))

    assert len(volume_rules.missing(seen)) == 7
    assert volumes.walks <= 1


@pytest.mark.parametrize(("minutes", "verdict"), [(1, Verdict.OK), (11, Verdict.FAILED)])
def test_the_instance_ends_before_its_deleted_node(minutes: float, verdict: Verdict):
    found = e.not_ready()
    since = f"{e.NOW - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
    meta = structs.replace(found.metadata, deletion_timestamp=since)
    seen = with_cloud(instances={e.INSTANCE: e.instance(state="shutting-down")})
    going = with_cluster(nodes=[structs.replace(found, metadata=meta)])
    checks = checked(replace(going, cloud=seen.cloud))

    assert checked(seen)["instances"].verdict is Verdict.FAILED
    assert {checks[each].verdict for each in ("instances", "nodes-ready")} == {verdict}
    assert exit_status(checks.values()) == int(verdict is Verdict.FAILED)
