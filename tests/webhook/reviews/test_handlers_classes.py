"""Reviews of StorageClasses, from the request to the answer."""

from tests.webhook.edges import Kube, a_csi_node, a_node
from tests.webhook.world import World
from webhook.model.review import Json

AT_ONCE: Json = {"metadata": {"name": "fast"}, "provisioner": "ebs.csi.aws.com"}
MISSPELT: Json = AT_ONCE | {"parameters": {"typ": "gp3"}}


def in_two_zones(*, filled: bool = True) -> World:
    kube = Kube()
    for name, zone in (("node-1", "us-east-1a"), ("node-2", "us-east-1b")):
        kube.put("nodes", a_node(name, zone=zone))
        kube.put("csinodes", a_csi_node(name))
    return World(kube, filled=filled)


def test_what_can_never_work_is_refused_without_asking_anybody():
    world = in_two_zones()

    answer = world.answer("class", MISSPELT)

    assert answer.why == "ImpossibleClass"
    assert "'typ'" in answer.message
    assert (world.kube.read, world.ec2.asked) == ([], [])


def test_nodes_are_those_of_the_caches():
    [warning] = in_two_zones().answer("class", AT_ONCE).warnings

    assert "us-east-1a or us-east-1b" in warning


def test_before_the_caches_are_full_the_answer_does_not_wait_for_them():
    world = in_two_zones(filled=False)

    assert world.answer("class", MISSPELT).why == "ImpossibleClass"
    [warning] = world.answer("class", AT_ONCE).warnings
    assert "WaitForFirstConsumer" in warning
    assert world.took_s == 0
