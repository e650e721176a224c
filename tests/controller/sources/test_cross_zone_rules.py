"""The snapshots by which clones come to other zones."""

from __future__ import annotations

import pytest

from provisioner.classes.storage_class_rules import read
from provisioner.controller.provisioning.plan_rules import tags_of
from provisioner.controller.sources.cross_zone_rules import found_again, is_left_over, request
from provisioner.model import tags
from provisioner.model.claim import Claim
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.names import (
    CROSS_ZONE_CLAIM,
    CROSS_ZONE_CLUSTER,
    MADE_BY_DRIVER,
    UNCLAIMED,
    VOLUME_NAME,
)
from tests.builders import UID, VOLUME, a_claim, a_class, a_plan
from tests.sources import CLONE

OURS = {CROSS_ZONE_CLUSTER: "prod", CROSS_ZONE_CLAIM: UID}


def taken(
    snapshot_id: str = "snap-1",
    *,
    state: SnapshotState = SnapshotState.COMPLETED,
    volume_id: str = VOLUME,
    **changed: str,
) -> EbsSnapshot:
    names = {"cluster": CROSS_ZONE_CLUSTER, "uid": CROSS_ZONE_CLAIM}
    written = OURS | {names[key]: value for key, value in changed.items()}
    return EbsSnapshot(snapshot_id, volume_id, state, 1, tags=written)


def test_it_says_whose_it_is_and_nothing_that_is_said_of_volumes():
    of_volume = tags_of(CLONE, read(a_class()), "prod", tags.parse_extra("team=a"))

    written = dict(request(CLONE, VOLUME, "prod", of_volume).tags)

    assert written.items() >= OURS.items() | tags.of_cluster("prod").items()
    assert written["team"] == "a"
    assert written[MADE_BY_DRIVER] == "true"
    assert not {VOLUME_NAME, UNCLAIMED} & written.keys()


def test_a_request_names_the_claim():
    asked = request(CLONE, VOLUME, "prod", a_plan(CLONE).request.tags)

    assert asked.volume_id == VOLUME
    assert CLONE.key in asked.description


def test_the_one_that_is_furthest_is_found_again():
    found = [taken("snap-1", state=SnapshotState.PENDING), taken("snap-2"), taken("snap-3")]

    again = found_again(CLONE, VOLUME, found)

    assert again is not None
    assert again.snapshot_id == "snap-2"


@pytest.mark.parametrize(
    "other",
    [
        taken(state=SnapshotState.ERROR),
        taken(state=SnapshotState.RECOVERABLE),
        taken(volume_id="vol-2"),
        taken(uid="another"),
    ],
)
def test_what_is_of_no_use_is_not_found_again(other: EbsSnapshot):
    assert found_again(CLONE, VOLUME, [other]) is None


@pytest.mark.parametrize(
    ("snapshot", "claim", "in_flight", "left_over"),
    [
        pytest.param(taken(), None, (), True, id="claim gone"),
        pytest.param(taken(), a_claim(volume_name="pvc-1"), (), True, id="claim bound"),
        pytest.param(taken(), CLONE, (), False, id="claim waits"),
        pytest.param(taken(), None, (UID,), False, id="volume in the making"),
        pytest.param(taken(cluster="other"), None, (), False, id="another cluster's"),
        pytest.param(taken(uid=""), None, (), False, id="of nobody"),
    ],
)
def test_what_is_left_over(
    snapshot: EbsSnapshot, claim: Claim | None, in_flight: tuple[str, ...], *, left_over: bool
):
    answer = is_left_over(snapshot, claim, cluster_id="prod", in_flight=in_flight)

    assert answer is left_over
