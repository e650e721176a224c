import msgspec
import pytest

from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.zone import BETA_ZONE_LABEL, ZONE_LABEL


def a_volume(labels=None, affinity=None):
    document = {"metadata": {"name": "pv", "labels": labels}, "spec": {"nodeAffinity": affinity}}
    return msgspec.convert(document, PlacedVolume)


def required(*zones):
    expression = {"key": ZONE_LABEL, "operator": "In", "values": list(zones)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


@pytest.mark.parametrize(
    ("labels", "affinity", "zones"),
    [
        (None, required("us-east-1a"), {"us-east-1a"}),
        ({ZONE_LABEL: "us-east-1b"}, required("us-east-1a"), {"us-east-1a"}),
        ({ZONE_LABEL: "us-east-1a__us-east-1b"}, None, {"us-east-1a", "us-east-1b"}),
        ({BETA_ZONE_LABEL: "us-east-1c"}, {"required": None}, {"us-east-1c"}),
        (None, {"required": {"nodeSelectorTerms": None}}, None),
        (None, None, None),
    ],
)
def test_the_zones_are_those_of_the_affinity_or_else_of_the_label(labels, affinity, zones):
    assert a_volume(labels, affinity).zones == zones
