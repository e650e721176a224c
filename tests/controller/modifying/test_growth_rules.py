"""Which size a claim's volume is to have: the table of the contract, and what holds for all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.modifying.growth_rules import (
    FILE_SYSTEM_PENDING,
    RESIZER,
    Grow,
    ResizeStatus,
    decide,
    is_ours,
)
from provisioner.model import claim as c
from provisioner.model import persistent_volume as p
from provisioner.model.decision import SETTLED
from provisioner.model.meta import ObjectMeta, ObjectReference
from provisioner.model.quantity import parse_bytes

DRIVER = "ebs.csi.aws.com"
PENDING, RUNNING = ResizeStatus.NODE_PENDING, ResizeStatus.NODE_IN_PROGRESS
NODE_NO, SENT = ResizeStatus.NODE_INFEASIBLE, ResizeStatus.CONTROLLER_IN_PROGRESS
NO = ResizeStatus.CONTROLLER_INFEASIBLE


def a_claim(
    request: str,
    *,
    has: str = "10Gi",
    begun: str = "",
    status: str = "",
    told: str = "",
    wants: str | None = None,
    **meta: str,
) -> c.Claim:
    return c.Claim(
        metadata=ObjectMeta(name="data", namespace="web", uid="u1", annotations=meta or None),
        spec=c.ClaimSpec(
            volume_name="pv-1",
            resources=c.ClaimResources(requests={"storage": request}),
            volume_attributes_class_name=wants,
        ),
        status=c.ClaimStatus(
            phase="Bound",
            capacity={"storage": has},
            allocated_resources={"storage": begun} if begun else None,
            allocated_resource_statuses={"storage": status} if status else None,
            conditions=[c.Condition(type=told, status="True")] if told else None,
        ),
    )


def a_pv(size: str = "10Gi", *, in_tree: bool = False, uid: str = "u1") -> p.PersistentVolume:
    volume = "vol-0123456789abcdef0"
    csi = None if in_tree else p.CsiSource(driver=DRIVER, volume_handle=volume)
    return p.PersistentVolume(
        metadata=ObjectMeta(name="pv-1", uid="pv-u1"),
        spec=p.PersistentVolumeSpec(
            capacity={"storage": size},
            claim_ref=ObjectReference(uid=uid, namespace="web", name="data"),
            csi=csi,
            aws_elastic_block_store=p.InTreeSource(volume_id=volume) if in_tree else None,
        ),
    )


@pytest.mark.parametrize(
    ("claim", "size", "is_free", "target"),
    [
        # The persistent volume is smaller than what is wanted.
        (a_claim("20Gi"), "10Gi", True, "20Gi"),
        (a_claim("20Gi", begun="30Gi", status=NO), "10Gi", True, "20Gi"),
        (a_claim("20Gi", begun="30Gi", status=SENT), "10Gi", False, "30Gi"),
        (a_claim("20Gi", begun="30Gi", status=SENT), "10Gi", True, "20Gi"),
        (a_claim("20Gi", begun="15Gi", status=PENDING), "15Gi", True, None),
        (a_claim("20Gi", begun="15Gi", status=RUNNING), "15Gi", True, None),
        (a_claim("20Gi", begun="15Gi", status=PENDING), "10Gi", True, "15Gi"),
        (a_claim("20Gi", begun="15Gi", status=NODE_NO), "10Gi", True, "15Gi"),
        # It is large enough: it is written down, or the file system's turn.
        (a_claim("20Gi", begun="20Gi", status=PENDING), "20Gi", True, None),
        (a_claim("20Gi", begun="20Gi", status=SENT), "20Gi", False, "20Gi"),
        (a_claim("20Gi", begun="25Gi", status=SENT), "25Gi", False, "25Gi"),
        (a_claim("20Gi", begun="20Gi", status=NODE_NO), "20Gi", True, "20Gi"),
        (a_claim("20Gi", begun="90Gi", status=NO), "20Gi", True, "20Gi"),
        (a_claim("20Gi"), "20Gi", True, "20Gi"),
        (a_claim("20Gi", told=FILE_SYSTEM_PENDING), "20Gi", True, None),
        # It has what is wanted.
        (a_claim("10Gi"), "10Gi", True, None),
        (a_claim("10Gi", has="12Gi"), "12Gi", True, None),
        (a_claim("10240Mi"), "10Gi", True, None),
    ],
)
def test_the_size(claim, size, is_free, target):
    found = decide(claim, a_pv(size), is_free=is_free)

    assert (found.target if isinstance(found, Grow) else None) == target


def test_a_size_is_rounded_up_to_what_ebs_has():
    assert decide(a_claim("10.5Gi"), a_pv(), is_free=True) == Grow("10.5Gi", 11)


@pytest.mark.parametrize(
    ("claim", "persistent_volume", "ours"),
    [
        (a_claim("20Gi"), a_pv(), True),
        (a_claim("20Gi"), a_pv(uid="another"), False),
        (a_claim("20Gi"), a_pv(in_tree=True), False),
        (a_claim("20Gi", **{RESIZER: DRIVER}), a_pv(in_tree=True), True),
        (a_claim("20Gi", **{RESIZER: "other"}), a_pv(in_tree=True), False),
        (a_claim("10Gi", wants="gold"), a_pv(in_tree=True), True),
        (a_claim("10Gi", wants="gold", **{RESIZER: "other"}), a_pv(in_tree=True), False),
    ],
)
def test_whose_volume_is_ours_to_grow(claim, persistent_volume, ours):
    assert is_ours(claim, persistent_volume, driver=DRIVER) is ours


def test_a_volume_of_another_driver_is_not_ours():
    assert not is_ours(a_claim("20Gi"), a_pv(), driver="other")


SIZES = st.integers(1, 100).map("{}Gi".format)


@given(
    sizes=st.tuples(SIZES, SIZES, SIZES, SIZES),
    status=st.sampled_from(["", *ResizeStatus]),
    is_free=st.booleans(),
)
def test_nothing_is_grown_to_but_what_is_wanted_or_begun(sizes, status, is_free):
    request, has, begun, size = sizes
    claim = a_claim(request, has=has, begun=begun, status=status)

    found = decide(claim, a_pv(size), is_free=is_free)

    if isinstance(found, Grow):
        assert parse_bytes(request) > parse_bytes(has)
        assert found.target in {request, begun}
        assert found.size_gib == int(found.target.removesuffix("Gi"))
    if parse_bytes(request) <= parse_bytes(has):
        assert found == SETTLED
    if isinstance(found, Grow) and status == SENT and not is_free:
        assert found.target == begun  # it may have been sent
