from __future__ import annotations

import ipaddress

import pytest

from provisioner.sandbox.network import addresses
from provisioner.sandbox.network.addresses import DNS, KUBERNETES, PODS, ROUTER, SERVICES, Seat

# moto's random_private_ip.
INSTANCES = ipaddress.ip_network("10.0.0.0/8")


def test_no_address_of_ours_can_be_an_instances() -> None:
    ours = [ipaddress.ip_network(each) for each in (ROUTER, SERVICES, Seat(1, "10.1.2.3").pods)]

    assert not any(each.overlaps(INSTANCES) for each in ours)
    assert not any(a.overlaps(b) for a in ours for b in ours if a is not b)


def test_the_api_servers_service_is_the_first_of_the_range() -> None:
    assert ipaddress.ip_address(KUBERNETES) == ipaddress.ip_network(SERVICES)[1]


def test_the_dns_server_has_an_address_of_a_service() -> None:
    assert ipaddress.ip_address(DNS) in ipaddress.ip_network(SERVICES)


def test_nodes_have_ranges_and_links_of_their_own() -> None:
    seats = [Seat(number, f"10.0.0.{number}") for number in range(1, 251)]

    ranges = [ipaddress.IPv4Network(seat.pods) for seat in seats]
    assert len(set(ranges)) == len(seats)
    assert all(each.subnet_of(ipaddress.IPv4Network(PODS)) for each in ranges)
    assert len({seat.link for seat in seats}) == len(seats)
    assert max(len(seat.link) for seat in seats) <= 15  # IFNAMSIZ, with its zero


@pytest.mark.parametrize("number", [0, 251])
def test_there_is_no_room_for_more(number: int) -> None:
    with pytest.raises(ValueError, match="at most 250 real nodes"):
        Seat(number, "10.0.0.1")


def test_the_router_knows_the_way_to_a_node_and_its_pods() -> None:
    lines = addresses.links(Seat(2, "10.9.8.7"), 4711)

    assert "link add node2 type veth peer name eth0 netns 4711" in lines
    assert f"route add 10.9.8.7/32 dev node2 src {ROUTER}" in lines
    assert f"route add 100.64.2.0/24 via 10.9.8.7 dev node2 src {ROUTER} onlink" in lines
