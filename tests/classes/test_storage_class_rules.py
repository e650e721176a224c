import contextlib
import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.storage_class_rules import (
    FILE_SYSTEM_KEY,
    NAMES,
    SECRET_KEYS,
    SECRET_ROW,
    TABLE,
    TAG_ROW,
    Formatting,
    Parameters,
    boolean,
    formatting_fault,
    parse_parameters,
    read,
)
from provisioner.model import tags
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.errors import RefusedHereError
from provisioner.model.volume_type import VOLUME_TYPES
from tests.builders import a_class, a_term


def test_an_empty_class_means_gp3():
    assert parse_parameters({}) == Parameters(volume_type="gp3")


def test_keys_ignore_case_and_a_key_means_encryption():
    arn = "arn:aws-cn:kms:cn-north-1:123456789012:key/abc"

    assert parse_parameters({"Type": "io2", "IOPS": "500", "KmsKeyId": arn}) == Parameters(
        volume_type="io2", iops=500, encrypted=True, kms_key_id=arn
    )


@pytest.mark.parametrize("name", ["encrypted", "ext4BigAlloc", "allowAutoIOPSPerGBIncrease"])
def test_an_empty_boolean_is_not_said(name: str):
    assert parse_parameters({name: ""}) == parse_parameters({name: "  "}) == parse_parameters({})


@pytest.mark.parametrize("text", ["true", "True", "1", "yes"])
def test_usual_spellings_of_true_are_true(text):
    assert parse_parameters({"encrypted": text}).encrypted


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"tpye": "gp3"}, "unknown parameter 'tpye'; known are type, iops"),
        ({"type": "gp4"}, "'gp4' is not an EBS volume type"),
        ({"iops": "many"}, "parameter 'iops': 'many' is not a whole number"),
        ({"iops": "-1"}, "is not a whole number"),
        ({"throughput": "1.5"}, "is not a whole number"),
        ({"encrypted": "maybe"}, 'is neither "true" nor "false"'),
        (
            {"encrypted": "false", "kmsKeyId": "arn:aws:kms:us-east-1:123456789012:key/k"},
            "encrypted is false",
        ),
        ({"kmsKeyId": "mine"}, "is not a KMS key: it is neither an ARN"),
        ({"kmsKeyId": "arn:aws:s3:::bucket"}, "is not a KMS key"),
        ({"iops": "1.5"}, "is not a whole number"),
        ({"iops": "3 000"}, "is not a whole number"),
        ({"iops": "٣"}, "is not a whole number"),
        ({"iops": "2147483648"}, "is more than EC2 can accept"),
        ({"iops": "9" * 5_000}, "is more than EC2 can accept"),
        ({"iopsPerGB": "ten"}, "parameter 'iopsPerGB': 'ten' is not a whole number"),
        ({"volumeInitializationRate": "99"}, "is too low: EC2's minimum is 100 MiB/s"),
        ({"allowAutoIOPSPerGBIncrease": "-"}, 'is neither "true" nor "false"'),
        ({"blockSize": "4 KiB"}, "is neither a number nor a number with a unit"),
        ({"inodeSize": "-o"}, "is neither a number"),
        ({"iops": "3000", "iopsPerGB": "5"}, "iops and iopsPerGB are both given"),
        ({"fstype": "xfs", "csi.storage.k8s.io/fstype": "xfs"}, "given twice"),
        ({"ext4ClusterSize": "64k"}, 'ext4ClusterSize needs ext4BigAlloc: "true"'),
        (
            {"fstype": "xfs", "ext4BigAlloc": "true"},
            "ext4BigAlloc cannot be used with xfs, only with ext4",
        ),
        (
            {"fstype": "xfs", "bytesPerInode": "1", "numberOfInodes": "2"},
            "bytesPerInode and numberOfInodes cannot be used with xfs, only with ext4, ext3",
        ),
        (
            {"fstype": "ntfs"},
            "is for Windows nodes, which are not supported here",
        ),
        ({"fstype": "ext3", "ext4EncryptionSupport": "yes"}, "cannot be used with ext3"),
        ({"csi.storage.k8s.io/node-stage-secret-nam": "s"}, "unknown parameter"),
        ({"csi.storage.k8s.io/Node-Stage-Secret-Name": "s"}, "unknown parameter"),
        ({SECRET_ROW: "s"}, "unknown parameter"),
        ({"csi.storage.k8s.io/pvc/name": "x"}, "unknown parameter"),
        ({"outpostArn": "arn:aws:outposts:us-east-1:123456789012:outpost/op-1"}, "unknown"),
        ({"TagSpecification_1": "a=b"}, "unknown parameter 'TagSpecification_1'"),
        ({"tagSpecification_1": "a"}, "'a' is not of the form key=value"),
        ({"tagSpecification_1": "a={{ .PVCName"}, "parameter 'tagSpecification_1': the template"),
        ({"tagSpecification_1": "aws:a=b"}, "tag 'aws:a' is reserved"),
        ({"tagSpecification_1": "kubernetes.io/cluster/x=owned"}, "is reserved"),
        ({"tagSpecification_1": "a=" + "v" * 257}, "is too long"),
        ({"tagSpecification_1": "a=1", "tagSpecification_2": "a=2"}, "tag 'a' is given twice"),
        ({"csi.storage.k8s.io/fstype": "btrfs"}, "is not a supported file system"),
        ({"CSI.storage.k8s.io/fstype": "ext4"}, "unknown parameter"),
        ({"type": "gp3", "TYPE": "gp2"}, "given twice"),
    ],
)
def test_refuses_with_a_sentence_that_names_the_parameter(raw, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_parameters(raw)


def test_every_parameter_lands_in_its_field():
    read = parse_parameters(
        {
            "type": "gp3",
            "iopsPerGB": "+50",
            "allowAutoIOPSPerGBIncrease": "T",
            "allowAutoIOPSIncreaseOnModify": "no",
            "throughput": "0250",
            "volumeInitializationRate": "300",
            "encrypted": "on",
            "fstype": "EXT4",
            "blockSize": "4096",
            "inodeSize": "512",
            "bytesPerInode": "8192",
            "numberOfInodes": "200192",
            "ext4BigAlloc": "true",
            "ext4ClusterSize": "16384",
            "ext4EncryptionSupport": "1",
            "blockAttachUntilInitialized": "yes",
            "blockExpress": "whatever",
            "tagSpecification_1": "team=a",
            "tagSpecificationOther": "claim={{ .PVCName }}",
        }
    )

    assert read == Parameters(
        volume_type="gp3",
        iops_per_gib=50,
        raises_iops_to_minimum=True,
        iops_follow_growth=False,
        throughput_mibps=250,
        initialization_rate_mibps=300,
        encrypted=True,
        file_system="ext4",
        formatting=Formatting(
            block_size="4096",
            inode_size="512",
            bytes_per_inode="8192",
            number_of_inodes="200192",
            ext4_big_alloc=True,
            ext4_cluster_size="16384",
            ext4_encryption_support=True,
        ),
        attaches_when_initialized=True,
        tag_templates=(tags.parse("claim={{ .PVCName }}"), tags.parse("team=a")),
    )
    assert read.attributes() == {
        "blocksize": "4096",
        "inodesize": "512",
        "bytesperinode": "8192",
        "numberofinodes": "200192",
        "ext4bigalloc": "true",
        "ext4clustersize": "16384",
        "ext4encryptionsupport": "true",
        "blockattachuntilinitialized": "true",
    }


PATTERNS = {
    name for row in TABLE if row.name in (TAG_ROW, SECRET_ROW) for name in (row.name, row.also)
}


@pytest.mark.parametrize("name", sorted(set(NAMES) - PATTERNS - {FILE_SYSTEM_KEY, "ext4BigAlloc"}))
def test_names_ignore_case(name):
    row = next(row for row in TABLE if name in (row.name, row.also))
    samples = {"type": "io2", "kmsKeyId": "alias/a", "fstype": "ext4"}
    value = "true" if row.parser is boolean else samples.get(name, "256")
    base = {"ext4BigAlloc": "true"}

    assert parse_parameters(base | {name.upper(): value}) == parse_parameters(
        base | {name.lower(): value}
    )


def test_every_key_of_a_secret_is_taken_and_means_nothing():
    # external-provisioner 6.3 pkg/controller/controller.go: removePrefixedParameters
    assert len(SECRET_KEYS) == 16
    assert parse_parameters(dict.fromkeys(SECRET_KEYS, "x") | {"iops": "4000"}) == parse_parameters(
        {"iops": "4000"}
    )


@pytest.mark.parametrize(
    "raw",
    [
        {"encrypted": "false", "kmsKeyId": "alias/mine"},
        {"encrypted": "perhaps"},
        {"iops": "-1"},
        {"fstype": "btrfs"},
        {"type": "gp3", "TYPE": "gp2"},
        {"tagSpecification_1": "a=b", "tagSpecification_2": "a=b"},
        {"tagSpecification_1": "a={{with .PVCName}}{{.}}{{end}}"},
    ],
)
def test_what_the_stock_driver_makes_volumes_of_is_refused_here_alone(raw):
    with pytest.raises(RefusedHereError):
        parse_parameters(raw)


def test_two_file_systems_are_refused_by_external_provisioner_too():
    with pytest.raises(ValueError, match="given twice") as caught:
        parse_parameters({"fstype": "xfs", "FSTYPE": "xfs"})
    assert not isinstance(caught.value, RefusedHereError)


def test_what_the_stock_driver_takes_for_nothing_is_nothing():
    empty = {"type": "", "kmsKeyId": "", "fstype": "", "blockSize": ""}

    assert (
        parse_parameters({**empty, "iops": "0", "throughput": "0", "iopsPerGB": "0"})
        == Parameters()
    )
    assert parse_parameters({**empty}).attributes() == {}


@pytest.mark.parametrize(
    "key",
    [
        "alias/aws/ebs",
        "arn:aws:kms:eu-central-1:123456789012:alias/mine",
        "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/mrk-1234abcd12ab34cd56ef1234567890ab",
        "1234abcd-12ab-34cd-56ef-1234567890ab",
        "1234ABCD-12AB-34CD-56EF-1234567890AB",
        "mrk-1234abcd12ab34cd56ef1234567890ab",
    ],
)
def test_a_key_is_named_as_ec2_takes_it(key):
    assert parse_parameters({"kmsKeyId": key}).kms_key_id == key


def test_iops_are_one_number_or_grow_with_the_size():
    assert parse_parameters({"iops": "4000"}).iops_for(100) == 4_000
    assert parse_parameters({"iopsPerGB": "50"}).iops_for(100) == 5_000
    assert parse_parameters({}).iops_for(100) is None


def test_options_of_file_systems_are_not_for_raw_devices():
    options = parse_parameters({"blockSize": "4096", "ext4BigAlloc": "true"}).formatting

    assert "blockSize and ext4BigAlloc is for file systems" in str(formatting_fault(options, None))
    assert formatting_fault(options, "ext4") is None
    assert formatting_fault(Formatting(), None) is None


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_row_has_a_field_that_there_is(row):
    known = {field.name for field in dataclasses.fields(Parameters)}
    formatting = {f"formatting.{field.name}" for field in dataclasses.fields(Formatting)}

    assert row.field in known | formatting | {""}


def test_every_field_has_its_row():
    rows = [row.field for row in TABLE if row.field]

    assert len(rows) == len(set(rows))
    assert set(rows) == {
        *(field.name for field in dataclasses.fields(Parameters) if field.name != "formatting"),
        *(f"formatting.{field.name}" for field in dataclasses.fields(Formatting)),
    }


values = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["gp3", "io2", "3000", "-1", "0", "true", "False", "xfs", "ext4", "4k", "a=b"]),
    st.sampled_from(["a={{.PVName}}", "a={{", "=", "aws:x=1", "k={{ field `-` 3 .PVCName }}"]),
)


@given(
    st.dictionaries(
        st.sampled_from([*NAMES, "x", "TYPE", "tagSpecification_2", "tagSpecification", "İOPS"])
        | st.text(max_size=8),
        values,
    )
)
def test_no_input_raises_anything_but_our_refusal(raw):
    with contextlib.suppress(ValueError):
        read = parse_parameters(raw)
        assert read.volume_type in VOLUME_TYPES
        assert all(key.islower() for key in read.attributes())


def test_a_class_is_read_with_its_topologies():
    term = a_term(zone=["us-east-1a"])
    storage_class = a_class(parameters={"type": "st1"}, allowed=[term])

    found = read(storage_class)

    assert (found.name, found.storage_class) == ("fast", storage_class)
    assert found.parameters == Parameters(volume_type="st1")
    assert found.allowed_topologies == (term,)
    assert not found.is_in_tree


def test_a_class_without_parameters_means_all_defaults():
    found = read(a_class())

    assert found.parameters == Parameters()
    assert found.allowed_topologies == ()


def test_a_class_of_the_in_tree_plugin_is_told_apart():
    found = read(a_class(provisioner=IN_TREE_DRIVER, parameters={"type": "gp2"}))

    assert found.is_in_tree
    assert found.parameters.volume_type == "gp2"


def test_a_class_that_cannot_be_read_says_why():
    with pytest.raises(ValueError, match="unknown parameter 'tpye'"):
        read(a_class(parameters={"tpye": "gp3"}))
