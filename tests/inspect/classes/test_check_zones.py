"""Where a class lets volumes be made, zone by zone."""

from provisioner.classes.storage_class_rules import read
from provisioner.inspect.classes import check_rules as rules
from provisioner.inspect.classes.check_rules import NodeZone
from provisioner.model.storage_class import StorageClass
from tests.builders import a_class, a_term

A, B = "us-east-1a", "us-east-1b"


def in_zones(*zones: str, has_driver: bool = True) -> list[NodeZone]:
    return [NodeZone(zone, has_driver) for zone in zones]


def doubts(storage_class: StorageClass, nodes: list[NodeZone]) -> list[str]:
    return list(rules.findings(storage_class, nodes).doubts)


ONE, TWO = "use1-az1", "use1-az2"


def with_ids(**ids: str) -> list[NodeZone]:
    return [
        NodeZone(f"us-east-1{at}", zone_id=zone_id, has_driver=True) for at, zone_id in ids.items()
    ]


def by_id(*ids: str, waits: bool = False) -> StorageClass:
    return a_class(allowed=[a_term(zone_id=list(ids))], waits=waits)


def allowed_by(storage_class: StorageClass, nodes: list[NodeZone] | None) -> list[str]:
    return sorted(rules.allowed_zones(read(storage_class), nodes) or ())


def test_nodes_tell_which_zone_an_id_is():
    nodes = with_ids(a=ONE, b=TWO)

    assert allowed_by(by_id(TWO), nodes) == [B]
    assert doubts(by_id(TWO), nodes) == []
    assert f"{A} or {B}" in doubts(by_id(ONE, TWO), nodes)[0]


def test_an_id_that_no_node_tells_stands_for_itself():
    assert allowed_by(by_id(TWO), None) == [TWO]
    assert allowed_by(by_id(ONE, TWO), with_ids(a=ONE)) == [A, TWO]
    assert allowed_by(by_id(TWO), in_zones(A)) == [TWO]


def test_an_id_is_only_misspelt_if_nodes_tell_theirs():
    assert "use1-az2, where no node is" in doubts(by_id(TWO, waits=True), with_ids(a=ONE))[0]
    assert doubts(by_id(TWO, waits=True), in_zones(A)) == []


def test_beside_a_zone_an_id_counts_only_if_nodes_tell_it():
    storage_class = a_class(allowed=[a_term(zone=[A, B], zone_id=[TWO])], waits=True)

    assert allowed_by(storage_class, with_ids(a=ONE, b=TWO)) == [B]
    assert allowed_by(storage_class, with_ids(a=ONE)) == [A, B]


def test_one_open_term_opens_all():
    terms = [a_term(zone=[A]), a_term(os=["linux"])]

    assert rules.allowed_zones(read(a_class(allowed=terms, waits=True)), in_zones(A, B)) is None
