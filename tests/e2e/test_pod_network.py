import json

from tests.e2e import pod_network


def test_each_pod_gets_a_link_and_an_address_of_its_nodes_range():
    document = json.loads(json.dumps(pod_network.configuration("10.99.1.0/24")))

    (plugin,) = document["plugins"]
    assert plugin["type"] == "ptp"
    assert plugin["ipam"]["subnet"] == "10.99.1.0/24"
