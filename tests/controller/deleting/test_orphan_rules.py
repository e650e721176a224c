from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.deleting.orphan_rules import (
    Keep,
    Leave,
    Remove,
    Report,
    Untag,
    World,
    decide,
    retained,
)
from provisioner.model import tags
from provisioner.model.leadership import Epoch
from provisioner.model.names import (
    CLAIM_NAME,
    CLAIM_NAMESPACE,
    CLUSTER_NAME,
    UNCLAIMED,
    VOLUME_NAME,
)
from provisioner.model.volume import AttachmentState as State
from provisioner.model.volume import VolumeState
from tests.builders import DRIVER, INSTANCE, UID, VOLUME, a_volume

NAME = f"pvc-{UID}"
NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
MIN_AGE = timedelta(minutes=10)
EPOCH = Epoch(NOW - timedelta(days=2))


def the_tags(policy="Delete", *, cluster="prod", name=NAME):
    owner = tags.Owner("shop", "data", name, policy or "")
    written = dict(tags.of_new_volume(owner, cluster_id=cluster, extra={}))
    if policy is None:
        written.pop(UNCLAIMED, None)
    return written


def an_orphan(policy="Delete", *, cluster="prod", name=NAME, **how):
    return a_volume(tags=the_tags(policy, cluster=cluster, name=name), **how)


def a_world(
    *, named=(), objects=(), claims=(), attempts=(), volumes=(), epoch=EPOCH, unreadable=()
):
    return World(
        named_volume_ids=frozenset(named),
        persistent_volume_names=frozenset(objects),
        claim_uids=frozenset(claims),
        in_flight_names=frozenset(attempts),
        in_flight_ids=frozenset(volumes),
        epoch=epoch,
        unreadable=frozenset(unreadable),
    )


EMPTY = a_world()


def decided(volume, world=EMPTY):
    return decide(volume, world, cluster_id="prod", now=NOW, min_age=MIN_AGE)


@pytest.mark.parametrize(
    ("policy", "decision"),
    [
        pytest.param("Delete", Remove(), id="made to be deleted"),
        pytest.param("Retain", Keep(), id="made to be kept"),
        pytest.param("Recycle", Report(), id="made for what nobody knows"),
        pytest.param(None, Report(), id="not tagged: it may hold data"),
    ],
)
def test_a_volume_that_nothing_knows_ends_as_its_tag_says(policy, decision):  # race 1
    assert decided(an_orphan(policy)) == decision


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
@pytest.mark.parametrize("epoch", [Epoch(NOW - timedelta(minutes=30)), None])
def test_what_another_controller_may_have_attached_is_reported_although_it_is_tagged(policy, epoch):
    older = an_orphan(policy, created_at=NOW - timedelta(minutes=31))

    assert decided(older, a_world(epoch=epoch)) == Report()


@pytest.mark.parametrize("policy", ["Delete", "Retain", None])
def test_a_volume_that_an_unreadable_object_may_name_is_only_reported(policy):
    assert decided(an_orphan(policy), a_world(unreadable=["odd"])) == Report()


@pytest.mark.parametrize("policy", ["Delete", "Retain", None])
def test_a_volume_that_a_move_may_have_made_is_only_reported(policy):
    assert decided(an_orphan(policy), replace(EMPTY, lacks_moves=True)) == Report()


@pytest.mark.parametrize("owner", [NAME, "shop/data"])
@pytest.mark.parametrize("policy", ["Delete", "Retain", None])
def test_the_volume_of_an_unreadable_object_is_left_alone(policy, owner):
    assert decided(an_orphan(policy), a_world(unreadable=[owner])) == Leave()


def test_a_tagged_volume_that_ec2_failed_to_make_is_removed():
    assert decided(an_orphan(state=VolumeState.ERROR)) == Remove()
    assert decided(an_orphan("Retain", state=VolumeState.ERROR)) == Report()


@pytest.mark.parametrize(
    ("volume", "world"),
    [
        pytest.param(an_orphan(), a_world(volumes=[VOLUME]), id="in flight here"),
        pytest.param(an_orphan(), a_world(attempts=[NAME]), id="its name in flight here"),
        pytest.param(an_orphan(), a_world(objects=[NAME]), id="an object of its name"),
        pytest.param(an_orphan(), a_world(claims=[UID]), id="its claim lives"),
        pytest.param(
            an_orphan(created_at=NOW - MIN_AGE + timedelta(seconds=1)), EMPTY, id="too young"
        ),
        pytest.param(
            an_orphan(created_at=NOW + MIN_AGE), EMPTY, id="made by a clock ahead of ours"
        ),
        pytest.param(an_orphan(created_at=None), EMPTY, id="of unknown age"),
        pytest.param(an_orphan(state=VolumeState.CREATING), EMPTY, id="creating"),
        pytest.param(an_orphan(state=VolumeState.DELETING), EMPTY, id="deleting"),
        pytest.param(an_orphan(state=VolumeState.DELETED), EMPTY, id="deleted"),
        pytest.param(an_orphan(on={INSTANCE: State.ATTACHED}), EMPTY, id="attached"),
        pytest.param(
            an_orphan(on={INSTANCE: State.DETACHED}), EMPTY, id="was attached a moment ago"
        ),
        pytest.param(an_orphan(cluster="other"), EMPTY, id="race 1: of another cluster"),
        pytest.param(an_orphan(cluster=""), EMPTY, id="of no cluster"),
        pytest.param(a_volume(), EMPTY, id="without tags"),
        pytest.param(an_orphan(None), a_world(named=[VOLUME]), id="named, not tagged"),
    ],
)
def test_a_volume_is_left_alone_that_is(volume, world):
    assert decided(volume, world) == Leave()


def test_a_tag_on_a_volume_that_an_object_names_is_taken_off():
    assert decided(an_orphan(), a_world(named=[VOLUME])) == Untag()


def test_old_enough_is_old_enough():
    assert decided(an_orphan(created_at=NOW - MIN_AGE)) == Remove()


@pytest.mark.parametrize("name", ["", "by-hand", "pvc-"])
@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_tagged_volume_whose_claim_cannot_be_told_is_only_reported(policy, name):
    assert decided(an_orphan(policy, name=name)) == Report()


@pytest.mark.parametrize("missing", [CLAIM_NAME, CLAIM_NAMESPACE])
def test_a_volume_whose_tags_no_longer_tell_its_claim_cannot_be_kept_for_it(missing):
    left = {key: value for key, value in the_tags("Retain").items() if key != missing}

    assert decided(a_volume(tags=left)) == Report()


def test_a_kept_volume_is_released_by_the_claim_that_it_was_made_for():
    assert retained(an_orphan("Retain", size_gib=3, zone="us-east-1b"), driver=DRIVER) == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": NAME,
            "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "3Gi"},
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": "shop",
                "name": "data",
                "uid": UID,
            },
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": DRIVER, "volumeHandle": VOLUME},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "topology.kubernetes.io/zone",
                                    "operator": "In",
                                    "values": ["us-east-1b"],
                                }
                            ]
                        }
                    ]
                }
            },
        },
    }


some_names = st.sampled_from([NAME, "pvc-other", "by-hand", ""])
volumes = st.builds(
    an_orphan,
    st.sampled_from(["Delete", "Retain", "?", None]),
    cluster=st.sampled_from(["prod", "other", ""]),
    name=some_names,
    state=st.sampled_from(list(VolumeState)),
    created_at=st.none()
    | st.datetimes(datetime(2026, 11, 20), datetime(2026, 11, 22), timezones=st.just(UTC)),  # noqa: DTZ001 -- hypothesis adds the zone
    on=st.dictionaries(st.just(INSTANCE), st.sampled_from(list(State))),
)
worlds = st.builds(
    a_world,
    named=st.sets(st.sampled_from([VOLUME, "vol-other"])),
    objects=st.sets(some_names),
    claims=st.sets(st.sampled_from([UID, "other"])),
    attempts=st.sets(some_names),
    volumes=st.sets(st.sampled_from([VOLUME, "vol-other"])),
    epoch=st.sampled_from([EPOCH, Epoch(NOW - timedelta(hours=12)), None]),
    unreadable=st.sets(st.sampled_from(["odd", NAME, "shop/data"])),
)


@given(volumes, worlds)
def test_only_a_tagged_volume_that_nobody_knows_is_ever_touched(volume, world):  # race 1
    answer = decided(volume, world)

    if not isinstance(answer, Remove | Keep):
        return
    name = volume.tags[VOLUME_NAME]
    assert volume.tags[UNCLAIMED] == ("Delete" if isinstance(answer, Remove) else "Retain")
    assert volume.tags[CLUSTER_NAME] == "prod"
    assert not volume.attachments
    assert volume.volume_id not in {*world.named_volume_ids, *world.in_flight_ids}
    assert name not in {*world.persistent_volume_names, *world.in_flight_names}
    assert name.removeprefix("pvc-") not in world.claim_uids
    assert volume.created_at is not None
    assert NOW - volume.created_at >= MIN_AGE
    assert not world.unreadable
    assert world.epoch is not None
    assert volume.created_at >= world.epoch.began_at
