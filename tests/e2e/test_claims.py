import pytest
import yaml

from tests.e2e import claims
from tests.e2e.claims import Variation


@pytest.fixture(params=Variation, ids=lambda each: each.value)
def variation(request):
    return request.param


def test_whatever_the_stock_driver_claims_we_claim_too():
    less = [each.name for each in claims.CAPABILITIES if each.stock and not each.ours]

    assert less == []


def test_whatever_is_not_claimed_or_differs_has_its_reason():
    every = (*claims.CAPABILITIES, *claims.OPTIONS)

    assert [each.name for each in every if not (each.ours and each.stock) and not each.why] == []


def test_the_driver_claims_what_the_table_says(variation):
    info = claims.driver(variation, "/folder")["DriverInfo"]
    ours = {each.name for each in claims.CAPABILITIES if each.ours}

    assert set(info["Capabilities"]) - {"RWX"} == ours
    assert all(info["Capabilities"].values())
    for each in claims.OPTIONS:
        if each.ours:
            assert info[each.name]


def test_only_raw_devices_of_io2_are_claimed_for_several_nodes(variation):
    claimed = "RWX" in claims.driver(variation, "/folder")["DriverInfo"]["Capabilities"]

    assert claimed is (variation is Variation.MULTI_ATTACH)
    assert claimed is (claims.storage_class(variation)["parameters"].get("type") == "io2")


def test_variations_differ_from_the_plain_class_in_one_thing(variation):
    plain, other = claims.storage_class(Variation.PLAIN), claims.storage_class(variation)
    differing = {key for key in plain if plain[key] != other[key]}

    assert plain["volumeBindingMode"] == "WaitForFirstConsumer"
    assert len(differing) == (variation is not Variation.PLAIN)


def test_the_documents_are_what_yaml_can_say(variation):
    document = claims.driver(variation, "/folder")

    assert yaml.safe_load(yaml.safe_dump(document)) == document
    assert document["StorageClass"]["FromFile"] == "/folder/class.yaml"


def test_the_table_has_a_row_for_each_claim():
    rows = claims.markdown().split("\n")

    assert len(rows) == 2 + len(claims.CAPABILITIES) + len(claims.OPTIONS)
    assert "| topology | yes | yes |  |" in rows


def test_a_feature_is_the_stock_drivers_too_if_it_claims_what_the_feature_needs():
    named = {each.name for each in (*claims.CAPABILITIES, *claims.OPTIONS)}

    assert set(claims.NEEDS.values()) <= named
    assert claims.stock_claims("volumes")
    assert claims.stock_claims("volume-expand")
    assert not claims.stock_claims("read-write-once-pod")
