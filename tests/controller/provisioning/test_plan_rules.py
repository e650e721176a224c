import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.storage_class_rules import read
from provisioner.controller.provisioning.client_token_rules import client_token
from provisioner.controller.provisioning.plan_rules import Plan, Provision, examine, plan
from provisioner.model import tags
from provisioner.model.claim import BETA_STORAGE_PROVISIONER, MIGRATED_TO, STORAGE_PROVISIONER
from provisioner.model.claim import DataSource as Source
from provisioner.model.data_source import Source as From
from provisioner.model.decision import SETTLED, Refuse
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.errors import Reason
from provisioner.model.names import CLAIM_NAME, CLAIM_NAMESPACE, UNCLAIMED, VOLUME_NAME
from tests.builders import DRIVER, UID, a_claim, a_class, a_persistent_volume, a_plan

SNAPSHOT = Source(kind="VolumeSnapshot", name="s", api_group="snapshot.storage.k8s.io")
POPULATED = Source(kind="Restore", name="r", api_group="example.com")
RAW = Source(kind="PersistentVolumeClaim", name="other")
FOREIGN = Source(
    kind="VolumeSnapshot", name="s", api_group="snapshot.storage.k8s.io", namespace="vault"
)


def examined(claim, storage_class, *, has_persistent_volume=False, persistent_volume=None):
    own = a_persistent_volume() if has_persistent_volume else persistent_volume
    return examine(claim, storage_class, driver=DRIVER, persistent_volume=own)


def planned(claim, storage_class, *, cluster_id="prod", source=None):
    return plan(
        claim,
        read(storage_class),
        zone="us-east-1b",
        cluster_id=cluster_id,
        extra_tags=tags.parse_extra("team=a"),
        default_file_system="ext4",
        source=source,
    )


def test_a_claim_of_our_class_is_provisioned():
    assert examined(a_claim(), a_class()) == Provision(a_class())


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({BETA_STORAGE_PROVISIONER: DRIVER}, id="beta annotation"),
        pytest.param({STORAGE_PROVISIONER: IN_TREE_DRIVER, MIGRATED_TO: DRIVER}, id="migrated"),
    ],
)
def test_a_claim_may_be_asked_of_us_in_older_ways(annotations):
    assert isinstance(examined(a_claim(annotations=annotations), a_class()), Provision)


@pytest.mark.parametrize(
    ("claim", "storage_class", "has_persistent_volume"),
    [
        pytest.param(a_claim(annotations={}), a_class(), False, id="asked of nobody"),
        pytest.param(
            a_claim(annotations={STORAGE_PROVISIONER: "x"}), a_class(), False, id="asked of another"
        ),
        pytest.param(a_claim(annotations={}), None, False, id="asked of nobody, no class"),
        pytest.param(a_claim(volume_name="pv"), a_class(), False, id="has a volume"),
        pytest.param(a_claim(), a_class(), True, id="its object is there"),
        pytest.param(a_claim(), a_class(provisioner="x"), False, id="class of another"),
        pytest.param(a_claim(), a_class(waits=True), False, id="waits for its consumer"),
        pytest.param(
            a_claim(deleting=True),
            a_class(),
            False,
            id="race 34: none is begun for a claim that goes",
        ),
        pytest.param(a_claim(deleting=True), None, False, id="going, its class gone"),
        pytest.param(
            a_claim(selector={}), a_class(provisioner="x"), False, id="bad, but of another"
        ),
        pytest.param(
            a_claim(selector={}), a_class(waits=True), False, id="bad, but not yet asked for"
        ),
    ],
)
def test_nothing_is_done_for_a_claim_that(claim, storage_class, has_persistent_volume):
    answer = examined(claim, storage_class, has_persistent_volume=has_persistent_volume)

    assert answer == SETTLED


def test_a_claim_that_waited_is_provisioned_once_a_node_is_selected():
    assert isinstance(examined(a_claim(node="node-1"), a_class(waits=True)), Provision)


@pytest.mark.parametrize(
    ("claim", "reason", "sentence"),
    [
        pytest.param(
            a_claim(source_ref=FOREIGN),
            Reason.NOT_SUPPORTED,
            "in namespace 'vault': only a source in the claim's own namespace",
            id="another namespace",
        ),
        pytest.param(
            a_claim(selector={"matchLabels": {}}),
            Reason.INVALID_CLAIM,
            "claim Selector is not supported",
            id="selector",
        ),
        pytest.param(
            a_claim(selector={}),
            Reason.INVALID_CLAIM,
            "claim Selector is not supported",
            id="empty selector",
        ),
        pytest.param(
            a_claim(modes=["ReadWriteMany"]),
            Reason.INVALID_CLAIM,
            "access mode ReadWriteMany",
            id="RWX",
        ),
        pytest.param(
            a_claim(modes=["ReadWriteOnce", "ReadOnlyMany"]),
            Reason.INVALID_CLAIM,
            "access mode ReadOnlyMany",
            id="ROX beside RWO",
        ),
    ],
)
def test_what_can_never_be_made_is_said_once_and_not_tried_again(claim, reason, sentence):
    answer = examined(claim, a_class())

    assert isinstance(answer, Refuse)
    assert answer.reason is reason
    assert sentence in answer.message
    assert answer.settled
    assert not answer.normal


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(a_claim(source=SNAPSHOT), id="snapshot"),
        pytest.param(a_claim(source_ref=SNAPSHOT), id="snapshot by ref"),
        pytest.param(a_claim(source=RAW), id="clone"),
        pytest.param(a_claim(source=RAW, source_ref=POPULATED), id="dataSource wins"),
        pytest.param(
            a_claim(source_ref=Source(kind=RAW.kind, name="other", namespace="shop")),
            id="its own namespace by name",
        ),
    ],
)
def test_what_a_claim_or_a_snapshot_is_the_source_of_is_provisioned(claim):
    assert isinstance(examined(claim, a_class()), Provision)


@pytest.mark.parametrize("rate", [None, 200])
@pytest.mark.parametrize(
    ("source", "snapshot_id", "volume_id", "size_gib"),
    [
        (None, None, None, 1),
        (From(snapshot_id="snap-1", size_gib=3), "snap-1", None, 3),
        (From(snapshot_id="snap-1"), "snap-1", None, 1),
        (From(volume_id="vol-1", size_gib=2), None, "vol-1", 2),
    ],
)
def test_what_ec2_is_told_of_the_source(source, snapshot_id, volume_id, size_gib, rate):
    wanted = {} if rate is None else {"volumeInitializationRate": str(rate)}

    made = planned(a_claim(), a_class(parameters=wanted), source=source)

    assert isinstance(made, Plan)
    request = made.request
    assert (request.snapshot_id, request.source_volume_id) == (snapshot_id, volume_id)
    assert request.size_gib == size_gib
    assert request.initialization_rate_mibps == (rate if snapshot_id else None)


def test_a_foreign_data_source_is_left_to_its_populator_without_a_warning():
    answer = examined(a_claim(source_ref=POPULATED), a_class())

    assert isinstance(answer, Refuse)
    assert answer.normal
    assert answer.settled


@pytest.mark.parametrize("modes", [["ReadWriteOnce"], ["ReadWriteOncePod"], []])
def test_access_modes_of_one_node_are_fine(modes):
    assert isinstance(examined(a_claim(modes=modes), a_class()), Provision)


def test_a_missing_class_is_waited_for():
    answer = examined(a_claim(), None)

    assert isinstance(answer, Refuse)
    assert answer.reason is Reason.CLASS_NOT_FOUND
    assert "StorageClass 'fast' does not exist" in answer.message
    assert not answer.settled


def test_a_plan_holds_all_that_ec2_is_told():
    storage_class = a_class(
        parameters={"type": "io2", "iops": "4000", "encrypted": "true"}, reclaim_policy="Retain"
    )

    made = planned(a_claim(size="10Gi"), storage_class)

    assert isinstance(made, Plan)
    request = made.request
    assert (request.zone, request.size_gib, request.volume_type) == ("us-east-1b", 10, "io2")
    assert (request.iops, request.throughput_mibps, request.encrypted) == (4000, None, True)
    written = dict(request.tags)
    assert written[UNCLAIMED] == "Retain"
    assert written[VOLUME_NAME] == made.persistent_volume_name == f"pvc-{UID}"
    assert (written[CLAIM_NAMESPACE], written[CLAIM_NAME]) == ("shop", "data")
    assert written["team"] == "a"


def test_a_class_without_a_reclaim_policy_means_delete():  # race 33
    made = planned(a_claim(), a_class(reclaim_policy=None))

    assert isinstance(made, Plan)
    assert dict(made.request.tags)[UNCLAIMED] == "Delete"


@pytest.mark.parametrize(
    ("size", "size_gib"),
    [
        ("1Gi", 1),
        ("1", 1),
        ("1073741825", 2),
        ("1500M", 2),
        ("100m", 1),
        ("1.5Gi", 2),
        ("1e10", 10),
    ],
)
def test_sizes_round_up_to_gib(size, size_gib):  # race 21
    made = planned(a_claim(size=size), a_class())

    assert isinstance(made, Plan)
    assert made.request.size_gib == size_gib


@pytest.mark.parametrize(
    ("volume_mode", "parameters", "file_system"),
    [
        pytest.param(None, {}, "ext4", id="race 33: no volumeMode means a file system"),
        pytest.param("Filesystem", {"csi.storage.k8s.io/fstype": "xfs"}, "xfs", id="of the class"),
        pytest.param("Block", {}, None, id="raw device"),
        pytest.param(
            "Block",
            {"csi.storage.k8s.io/fstype": "xfs"},
            None,
            id="raw device, whatever the class says",
        ),
    ],
)
def test_the_file_system(volume_mode, parameters, file_system):
    made = planned(a_claim(volume_mode=volume_mode), a_class(parameters=parameters))

    assert isinstance(made, Plan)
    assert made.file_system == file_system


@pytest.mark.parametrize(
    ("size", "parameters", "reason", "sentence"),
    [
        pytest.param(
            "10e399",
            {},
            Reason.INVALID_CLAIM,
            "a volume of 10e399 with class 'fast' cannot be created: a gp3 volume has 1 to 65536 GiB",
            id="absurd",
        ),
        pytest.param("0", {}, Reason.INVALID_CLAIM, "not 0", id="nothing"),
        pytest.param(
            "much",
            {},
            Reason.INVALID_CLAIM,
            "spec.resources.requests.storage: 'much'",
            id="no quantity",
        ),
        pytest.param("-1Gi", {}, Reason.INVALID_CLAIM, "'-1Gi' is negative", id="negative"),
        pytest.param(
            "1Gi",
            {"type": "io2"},
            Reason.INVALID_CLAIM,
            "has 4 to 65536 GiB",
            id="too small for its type",
        ),
        pytest.param(
            "4Gi", {"type": "io2"}, Reason.INVALID_CLAIM, "needs the parameter iops", id="no iops"
        ),
        pytest.param(
            "4Gi",
            {"type": "gp2", "throughput": "200"},
            Reason.INVALID_CLAIM,
            "throughput",
            id="throughput",
        ),
    ],
)
def test_what_ec2_could_not_make_is_refused_before_it_is_asked(size, parameters, reason, sentence):
    answer = planned(a_claim(size=size), a_class(parameters=parameters))

    assert isinstance(answer, Refuse)
    assert answer.reason is reason
    assert sentence in answer.message


def test_a_claim_without_a_size_is_refused():
    answer = planned(a_claim(size=""), a_class())

    assert isinstance(answer, Refuse)


def test_the_same_claim_gives_the_same_request_whatever_else_changes():  # race 3
    one, two = a_plan(a_claim(node="node-1")), a_plan(a_claim(node="node-2", deleting=True))

    assert one.request == two.request


def test_a_claim_made_anew_under_its_name_gives_another_volume():  # race 8
    one, two = a_plan(a_claim(uid="one")), a_plan(a_claim(uid="two"))

    assert one.request.client_token != two.request.client_token
    assert one.persistent_volume_name != two.persistent_volume_name


def test_the_client_token_is_the_one_of_the_stock_driver():
    name = f"pvc-{UID}"

    assert client_token(name) == hashlib.sha256(name.encode()).hexdigest()
    assert client_token(name, 2) == hashlib.sha256(f"{name}-2".encode()).hexdigest()


def test_a_plan_under_another_token_differs_in_the_token_alone():
    first, second = a_plan(), a_plan().with_token(2)

    assert second.request.client_token == client_token(f"pvc-{UID}", 2)
    assert second.with_token(1) == first


sources = st.sampled_from([None, SNAPSHOT, POPULATED, RAW, Source()])


@given(
    claim=st.builds(
        a_claim,
        size=st.one_of(st.text(max_size=12), st.sampled_from(["1Gi", "5Ti", "10e399", "-1"])),
        modes=st.lists(st.sampled_from(["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", ""])),
        volume_mode=st.sampled_from([None, "Block", "Filesystem", "?"]),
        volume_name=st.sampled_from(["", "pv"]),
        node=st.sampled_from(["", "node-1"]),
        deleting=st.booleans(),
        source=sources,
        source_ref=sources,
        selector=st.sampled_from([None, {}, {"matchLabels": {"a": "b"}}]),
        attributes_class=st.sampled_from([None, "", "gold"]),
        annotations=st.dictionaries(
            st.sampled_from([STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER, MIGRATED_TO]),
            st.sampled_from([DRIVER, IN_TREE_DRIVER, ""]),
        ),
    ),
    storage_class=st.none()
    | st.builds(
        a_class,
        provisioner=st.sampled_from([DRIVER, IN_TREE_DRIVER, ""]),
        parameters=st.none()
        | st.dictionaries(
            st.sampled_from(["type", "iops", "throughput", "encrypted", "kmsKeyId"]),
            st.sampled_from(["gp3", "io2", "st1", "3000", "0", "true", "no", ""]),
        ),
        reclaim_policy=st.sampled_from([None, "Delete", "Retain"]),
        waits=st.booleans(),
    ),
    has_persistent_volume=st.booleans(),
)
def test_no_claim_and_no_class_break_the_rules(claim, storage_class, has_persistent_volume):
    answer = examined(claim, storage_class, has_persistent_volume=has_persistent_volume)

    if isinstance(answer, Provision):
        assert not claim.deleting
        assert not claim.spec.volume_name
        assert not has_persistent_volume
        assert answer.storage_class.provisioner in (DRIVER, IN_TREE_DRIVER)
        with contextlib.suppress(ValueError):
            read(answer.storage_class)
            made = planned(claim, answer.storage_class)
            assert made.message if isinstance(made, Refuse) else made.request.size_gib >= 1


@pytest.mark.parametrize("claim_uid", [None, "another"])
def test_a_name_that_somebody_elses_persistent_volume_has_is_told(claim_uid):
    foreign = a_persistent_volume(claim_uid=claim_uid)

    answer = examined(a_claim(), a_class(), persistent_volume=foreign)

    assert isinstance(answer, Refuse)
    assert answer.settled
    assert (
        f"PersistentVolume {foreign.name} already exists, but its claimRef is not this claim"
        in answer.message
    )
