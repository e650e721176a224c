"""What CreateVolume is told of a class's parameters, and which claims a class cannot serve."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.storage_class_rules import NAMES, read
from provisioner.controller.provisioning.plan_rules import Plan, plan
from provisioner.model import tags
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.volume_type import LARGEST_NUMBER, VOLUME_TYPES
from tests.builders import a_claim, a_class


def planned(size="100Gi", *, ceiling=None, extra="", default="ext4", mode=None, **parameters):
    return plan(
        a_claim(size=size, volume_mode=mode),
        read(a_class(parameters=parameters)),
        zone="us-east-1a",
        cluster_id="prod",
        extra_tags=tags.parse_extra(extra),
        default_file_system=default,
        iops_ceiling=ceiling,
    )


def test_all_of_the_class_that_ec2_needs_is_told():
    made = planned(type="gp3", iopsPerGB="40", throughput="500", kmsKeyId="alias/a")

    assert isinstance(made, Plan)
    request = made.request
    assert (request.iops, request.throughput_mibps) == (4_000, 500)
    assert (request.encrypted, request.kms_key_id) == (True, "alias/a")


def test_the_rate_of_an_initialization_is_not_told_without_a_snapshot():
    made = planned(volumeInitializationRate="200")

    assert isinstance(made, Plan)
    assert made.request.initialization_rate_mibps is None


@pytest.mark.parametrize(
    ("parameters", "size", "ceiling", "asked", "given_iops"),
    [
        ({"type": "io1", "iops": "90000"}, "10Ti", 64_000, 90_000, 64_000),
        ({"type": "io1", "iopsPerGB": "100"}, "100Gi", None, 10_000, 5_000),
        ({"type": "gp3", "iops": "90000"}, "1Ti", 80_000, 90_000, 80_000),
        ({"type": "gp3", "iops": "90000"}, "1Ti", None, 90_000, 90_000),
        (
            {"type": "io2", "iopsPerGB": "1", "allowAutoIOPSPerGBIncrease": "true"},
            "10Gi",
            None,
            10,
            100,
        ),
    ],
)
def test_iops_are_fitted_and_the_plan_knows_it(parameters, size, ceiling, asked, given_iops):
    made = planned(size, ceiling=ceiling, **parameters)

    assert isinstance(made, Plan)
    assert made.iops is not None
    assert (made.iops.asked, made.iops.given) == (asked, given_iops)
    assert made.request.iops == given_iops


def test_where_ec2_chooses_nothing_is_fitted():
    made = planned()

    assert isinstance(made, Plan)
    assert made.iops is None
    assert made.request.iops is None


def test_tags_of_the_class_name_the_claim_and_those_of_the_option_win():
    made = planned(
        extra="team=ops",
        iopsPerGB="50",
        allowAutoIOPSIncreaseOnModify="true",
        tagSpecification_1="claim={{ .PVCNamespace }}/{{ .PVCName | toUpper }}",
        tagSpecification_2="team=class",
    )

    assert isinstance(made, Plan)
    written = dict(made.request.tags)
    assert written["claim"] == "shop/DATA"
    assert written["team"] == "ops"
    assert written["ebs.csi.aws.com/IOPSPerGb"] == "50"
    assert written["ebs.csi.aws.com/AllowAutoIOPSIncreaseOnModify"] == "true"


def test_a_class_without_iops_per_gib_writes_no_tags_of_it():
    made = planned(iops="4000")

    assert isinstance(made, Plan)
    assert not {key for key in dict(made.request.tags) if "IOPS" in key}


@pytest.mark.parametrize(
    ("parameters", "options", "reason", "sentence"),
    [
        ({"type": "io2", "iops": "99"}, {}, Reason.INVALID_CLAIM, "at least 100 IOPS, not 99"),
        (
            {"type": "gp3", "iopsPerGB": "10"},
            {},
            Reason.INVALID_CLAIM,
            "at least 3000 IOPS, not 1000; allowAutoIOPSPerGBIncrease raises them",
        ),
        ({"type": "gp2", "iopsPerGB": "3"}, {}, Reason.INVALID_CLAIM, "cannot be set for a gp2"),
        ({"iops": "3001"}, {"size": "1Gi"}, Reason.INVALID_CLAIM, "at most 3000 IOPS"),
        ({"throughput": "751"}, {}, Reason.INVALID_CLAIM, "751 MiB/s need 3004 IOPS"),
        ({"throughput": "124"}, {}, Reason.INVALID_CLAIM, "at least 125 MiB/s, not 124"),
        ({"type": "st1"}, {"size": "124Gi"}, Reason.INVALID_CLAIM, "125 to 16384 GiB, not 124"),
        ({"blockSize": "4096"}, {"mode": "Block"}, Reason.INVALID_CLAIM, "(volumeMode Block)"),
        (
            {"ext4BigAlloc": "true"},
            {"default": "xfs"},
            Reason.INVALID_CLAIM,
            "cannot be used with xfs",
        ),
        (
            {"tagSpecification_1": "a={{ .PVCName | field `-` 5 }}"},
            {},
            Reason.INVALID_CLASS,
            "class 'fast' or --extra-tags: tag 'a': function field: 'data' has no part number 5",
        ),
        (
            {f"tagSpecification_{i}": f"k{i}=v" for i in range(41)},
            {},
            Reason.INVALID_CLASS,
            "the volume would have 51 tags, 41 of them of the class and of --extra-tags",
        ),
    ],
)
def test_what_a_class_cannot_give_this_claim_is_refused(parameters, options, reason, sentence):
    answer = planned(**options, **parameters)

    assert isinstance(answer, Refuse)
    assert answer.reason is reason
    assert sentence in answer.message


@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.sampled_from(
            [
                *VOLUME_TYPES,
                *("0", "1", "100", "3000", "99999", "2147483647", "true", "no", "xfs", "4k"),
                *("k={{ .PVCName }}", "k={{ slice .PVCName 9 }}"),
            ]
        ),
        max_size=6,
    ),
    st.sampled_from(["1Gi", "4Gi", "125Gi", "1Ti", "100Ti", "10e399", "0", "x"]),
    st.sampled_from([None, 16_000, 1]),
    st.sampled_from([None, "Block"]),
)
def test_no_class_and_no_claim_ask_ec2_for_nonsense(parameters, size, ceiling, mode):
    with contextlib.suppress(ValueError):
        made = planned(size, ceiling=ceiling, mode=mode, **parameters)
        if isinstance(made, Refuse):
            assert made.message
            return
        request = made.request
        limits = VOLUME_TYPES[request.volume_type]
        assert limits.size_gib[0] <= request.size_gib <= LARGEST_NUMBER
        assert request.iops is None or limits.iops is not None
        assert len(request.tags) <= tags.MOST
        assert (made.file_system is None) is (mode == "Block")
