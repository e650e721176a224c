"""What the worked example takes for the product's fault, and what not."""

import msgspec
import pytest

from provisioner.conformance.cluster import example
from provisioner.conformance.cluster.kinds import RunPod

NO_NODE = "0/3 nodes are available: "


def pod(**status: object) -> RunPod:
    return msgspec.convert({"metadata": {"name": "writer"}, "status": status}, RunPod)


def unscheduled(why: str) -> RunPod:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "message": NO_NODE + why}])


def waiting(reason: str) -> RunPod:
    return pod(containerStatuses=[{"state": {"waiting": {"reason": reason, "message": "so"}}}])


@pytest.mark.parametrize(
    ("it", "why"),
    [
        (unscheduled("1 Too many pods"), "no node takes the pod writer: 0/3 nodes are available"),
        (unscheduled("1 node(s) were unschedulable"), "no node takes the pod writer"),
        (waiting("ErrImagePull"), "busybox cannot be pulled (so)"),
        (waiting("CreateContainerError"), "the container of the pod writer does not start: so"),
    ],
)
def test_what_has_nothing_to_do_with_volumes_is_not_the_products_fault(it: RunPod, why: str):
    assert example._not_ours([pod(), it], "busybox").startswith(why)


@pytest.mark.parametrize(
    "it",
    [
        unscheduled("1 node(s) exceed max volume count"),
        unscheduled("3 node(s) had volume node affinity conflict"),
        unscheduled("pod has unbound immediate PersistentVolumeClaims"),
        unscheduled("3 node(s) did not have enough free storage"),
        waiting("ContainerCreating"),
        pod(conditions=[{"type": "PodScheduled", "status": "True"}]),
    ],
)
def test_what_has_to_do_with_volumes_is(it: RunPod):
    assert example._not_ours([it], "busybox") == ""


def test_a_webhook_of_ours_that_answers_has_refused():
    said = (
        'cannot create x: admission webhook "storageclasses.ebs-provisioner.io" denied the request'
    )

    assert example._DENIED.search(f"{said}: EC2 has no volume type gp33")


@pytest.mark.parametrize(
    "said",
    [
        'failed calling webhook "storageclasses.ebs-provisioner.io": connection refused',
        'admission webhook "classes.example.org" denied the request: no',
    ],
)
def test_one_that_cannot_be_called_and_anothers_have_not(said: str):
    assert not example._DENIED.search(said)
