import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.parameters import Parameters, parse
from provisioner.model.volume_type import VOLUME_TYPES


def test_an_empty_class_means_gp3():
    assert parse({}) == Parameters(volume_type="gp3")


def test_keys_ignore_case_and_a_key_means_encryption():
    arn = "arn:aws-cn:kms:cn-north-1:123456789012:key/abc"

    assert parse({"Type": "io2", "IOPS": "500", "KmsKeyId": arn}) == Parameters(
        volume_type="io2", iops=500, encrypted=True, kms_key_id=arn
    )


@pytest.mark.parametrize("text", ["true", "True", "1", "yes"])
def test_usual_spellings_of_true_are_true(text):
    assert parse({"encrypted": text}).encrypted


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"tpye": "gp3"}, "unknown parameter 'tpye'; known are type, iops"),
        ({"type": "gp4"}, "'gp4' is no EBS volume type"),
        ({"iops": "many"}, "parameter 'iops': 'many' is not a whole number"),
        ({"iops": "-1"}, "is not a whole number"),
        ({"throughput": "1.5"}, "is not a whole number"),
        ({"encrypted": "maybe"}, 'is neither "true" nor "false"'),
        (
            {"encrypted": "false", "kmsKeyId": "arn:aws:kms:us-east-1:123456789012:key/k"},
            "encrypted is false",
        ),
        ({"kmsKeyId": "alias/mine"}, "is not the full ARN"),
        ({"csi.storage.k8s.io/fstype": "btrfs"}, "is no file system"),
        ({"CSI.storage.k8s.io/fstype": "ext4"}, "unknown parameter"),
        ({"type": "gp3", "TYPE": "gp2"}, "given twice"),
    ],
)
def test_refuses_with_a_sentence_that_names_the_parameter(raw, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse(raw)


@given(
    st.dictionaries(
        st.sampled_from(["type", "iops", "throughput", "encrypted", "kmsKeyId", "x"]),
        st.text(max_size=20),
    )
)
def test_no_input_raises_anything_but_our_refusal(raw):
    with contextlib.suppress(ValueError):
        assert parse(raw).volume_type in VOLUME_TYPES
