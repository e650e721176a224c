"""Which instance a node is, and the topology that it tells."""

import json

import pytest

from provisioner.model.meta import ObjectMeta
from provisioner.model.node import NodeSpec
from provisioner.node.instance.documents import (
    InstanceIdentity,
    NodeView,
    of_document,
    of_node,
    segments_of,
)

DOCUMENT = {"instanceId": "i-0a", "instanceType": "m5.large", "availabilityZone": "us-east-1a"}
ARN = "arn:aws-us-gov:outposts:us-gov-west-1:123456789012:outpost/op-0a"
ZONE = "topology.kubernetes.io/zone"
TYPE = "node.kubernetes.io/instance-type"


def test_a_document_is_read():
    found = of_document(json.dumps({**DOCUMENT, "accountId": 1}).encode(), "")

    assert found == InstanceIdentity("i-0a", "m5.large", "us-east-1a")


@pytest.mark.parametrize("missing", DOCUMENT)
def test_a_document_without_a_field_is_refused(missing):
    left = {name: value for name, value in DOCUMENT.items() if name != missing}

    with pytest.raises(ValueError, match=f"lacks {missing}$"):
        of_document(json.dumps(left).encode(), "")


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b"\xff", b'{"instanceId": 1}'])
def test_what_is_no_document_is_refused(data):
    with pytest.raises(ValueError, match="cannot be read"):
        of_document(data, "")


def node(provider_id="aws:///us-east-1a/i-0a", **labels):
    names = {"type": TYPE, "zone": ZONE}
    meta = ObjectMeta(name="n", labels={names[key]: value for key, value in labels.items()})
    return NodeView(metadata=meta, spec=NodeSpec(provider_id=provider_id))


@pytest.mark.parametrize("told", ["m5.large", "ml.m5.large"])
def test_a_node_object_is_read(told):
    found = of_node(node(type=told, zone="us-east-1a"))

    assert found == InstanceIdentity("i-0a", "m5.large", "us-east-1a")


def test_all_that_a_node_object_lacks_is_told():
    with pytest.raises(
        ValueError, match=f"^Node n lacks spec.providerID .* and .*{TYPE} and .*{ZONE}$"
    ):
        of_node(node(provider_id="gce://x"))


def test_a_zone_is_told_by_both_labels():
    assert segments_of(InstanceIdentity("i-0a", "m5.large", "us-east-1a")) == {
        ZONE: "us-east-1a",
        "topology.ebs.csi.aws.com/zone": "us-east-1a",
        "kubernetes.io/os": "linux",
    }


def test_an_outpost_is_told_by_all_four_keys():
    segments = segments_of(InstanceIdentity("i-0a", "m5.large", "us-gov-west-1a", ARN))

    assert {key: value for key, value in segments.items() if not key.endswith(("zone", "os"))} == {
        "topology.ebs.csi.aws.com/region": "us-gov-west-1",
        "topology.ebs.csi.aws.com/partition": "aws-us-gov",
        "topology.ebs.csi.aws.com/account-id": "123456789012",
        "topology.ebs.csi.aws.com/outpost-id": "op-0a",
    }


@pytest.mark.parametrize("arn", ["", "nonsense", ARN.replace("123456789012", ""), ARN[:-5]])
def test_half_an_outpost_is_none(arn):
    assert len(segments_of(InstanceIdentity("i-0a", "m5.large", "us-east-1a", arn))) == 3
