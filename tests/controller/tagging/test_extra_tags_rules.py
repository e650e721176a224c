"""Which extra tags are brought to a volume that is there, and to which one never."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.tagging.extra_tags_rules import Add, Skip, decide
from provisioner.model import tags
from provisioner.model.decision import SETTLED, Settled
from provisioner.model.meta import ObjectReference
from provisioner.model.names import (
    CLAIM_NAME,
    CLUSTER_NAME,
    MADE_BY_DRIVER,
    PERSISTENT_VOLUME_NAME,
    UNCLAIMED,
    VOLUME_NAME,
)
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.tag_template import TagTemplate, parse
from provisioner.model.volume import VolumeState
from tests.builders import UID, a_persistent_volume, a_volume

NAME = f"pvc-{UID}"
STOCK = {VOLUME_NAME: NAME, MADE_BY_DRIVER: "true"}
OURS = dict(
    tags.of_new_volume(tags.Owner("shop", "data", NAME, "Delete"), cluster_id="prod", extra={})
)
PV = a_persistent_volume()


def templates(*texts: str) -> list[TagTemplate]:
    return [parse(text) for text in texts]


def of(
    has: Mapping[str, str],
    *texts: str,
    cluster_id: str = "prod",
    state: VolumeState = VolumeState.IN_USE,
    persistent_volume: PersistentVolume = PV,
) -> Settled | Add | Skip:
    volume = a_volume(tags=has, state=state)
    return decide(volume, persistent_volume, templates(*texts), cluster_id=cluster_id)


def test_what_is_absent_is_added_and_what_is_there_stays():
    found = of({**OURS, "team": "somebody's own"}, "team=shop", "env=prod", "cost=42")

    assert found == Add((("cost", "42"), ("env", "prod")))


def test_a_volume_that_has_them_all_lacks_nothing():
    assert of({**OURS, "env": "another value"}, "env=prod") == SETTLED
    assert of(OURS) == SETTLED


@pytest.mark.parametrize(
    "has",
    [
        {},
        {VOLUME_NAME: NAME},
        {MADE_BY_DRIVER: "true"},
        {**STOCK, MADE_BY_DRIVER: "no"},
        {**STOCK, VOLUME_NAME: "pvc-of-another"},
        {**STOCK, CLUSTER_NAME: "staging"},
        {**STOCK, "kubernetes.io/cluster/staging": "owned"},
        {**OURS, "kubernetes.io/cluster/staging": "owned"},
        {PERSISTENT_VOLUME_NAME: NAME, CLAIM_NAME: "data"},  # the in-tree plugin's
    ],
    ids=str,
)
def test_a_volume_that_was_not_created_for_its_persistent_volume_is_left_alone(
    has: dict[str, str],
):
    assert of(has, "env=prod") == SETTLED


def test_volumes_of_the_stock_driver_with_no_cluster_in_their_tags_count():
    assert of(STOCK, "env=prod") == Add((("env", "prod"),))
    assert of(STOCK, "env=prod", cluster_id="") == Add((("env", "prod"),))


def test_without_a_cluster_id_those_of_a_named_cluster_are_left_alone():
    assert of(OURS, "env=prod", cluster_id="") == SETTLED


@pytest.mark.parametrize("state", VolumeState)
def test_only_volumes_that_stay_are_tagged(state: VolumeState):
    stays = state in (VolumeState.CREATING, VolumeState.AVAILABLE, VolumeState.IN_USE)

    assert isinstance(of(OURS, "env=prod", state=state), Add if stays else Settled)


@pytest.mark.parametrize(
    "key",
    [
        "KubernetesCluster",
        "kubernetes.io/cluster/prod",
        "kubernetes.io/created-for/pvc/name",
        CLUSTER_NAME,
        UNCLAIMED,
        "CSIVolumeSnapshotName",
    ],
)
def test_no_tag_of_ownership_is_added_afterwards(key: str):
    assert of(STOCK, f"{key}=owned", "env=prod") == Add((("env", "prod"),))
    assert of(STOCK, f"{key}=owned") == SETTLED


def test_a_template_names_the_claim_for_which_the_volume_was_created():
    text = "for={{.PVCNamespace}}/{{.PVCName}}"
    now = ObjectReference(namespace="other", name="later", uid="u")
    reused = msgspec.structs.replace(PV, spec=msgspec.structs.replace(PV.spec, claim_ref=now))

    assert of(OURS, text, persistent_volume=reused) == Add((("for", "shop/data"),))
    assert of(STOCK, text, persistent_volume=reused) == Add((("for", "other/later"),))


def test_a_template_waits_until_there_is_a_claim_to_name():
    unused = msgspec.structs.replace(PV, spec=msgspec.structs.replace(PV.spec, claim_ref=None))

    found = of(STOCK, "for={{.PVCName}}", "env=prod", persistent_volume=unused)

    assert found == Add((("env", "prod"),))


def test_a_template_that_fails_skips_the_volume_and_says_why():
    found = of(OURS, f"part={'x' * 250}{{{{ .PVName }}}}", "env=prod")

    assert isinstance(found, Skip)
    assert "vol-" in found.message
    assert "part" in found.message


@pytest.mark.parametrize(("others", "fits"), [(50 - len(OURS) - 1, True), (50 - len(OURS), False)])
def test_a_volume_never_gets_more_tags_than_ec2_allows(*, others: int, fits: bool):
    has = {**OURS, **{f"k{n}": "v" for n in range(others)}, "aws:cloudformation": "not counted"}

    found = of(has, "env=prod")

    assert isinstance(found, Add if fits else Skip)
    assert fits or (isinstance(found, Skip) and "50" in found.message)


@given(
    has=st.dictionaries(st.text(min_size=1), st.text(), max_size=8),
    extra=st.dictionaries(st.sampled_from(["a", "b", "c", "Name"]), st.sampled_from("xyz")),
    ours=st.booleans(),
)
def test_nothing_that_is_there_is_ever_written(
    *, has: dict[str, str], extra: dict[str, str], ours: bool
):
    has = has | (OURS if ours else {})

    found = of(has, *(f"{key}={value}" for key, value in extra.items()))

    added = dict(found.tags) if isinstance(found, Add) else {}
    assert not added.keys() & has.keys()
    assert added.items() <= extra.items()
    assert not added or ours
