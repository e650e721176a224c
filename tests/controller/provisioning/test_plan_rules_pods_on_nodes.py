"""A pod that came to its node without the scheduler: nobody else asks for the volume of its claim."""

import pytest

from provisioner.controller.provisioning.plan_rules import Provision, examine
from provisioner.model.claim import STORAGE_PROVISIONER
from provisioner.model.decision import SETTLED, Refuse
from tests.builders import DRIVER, a_claim, a_class, a_persistent_volume

UNASKED = a_claim(annotations={})


def examined(claim, storage_class, *, node="node-1", persistent_volume=None):
    return examine(
        claim, storage_class, driver=DRIVER, persistent_volume=persistent_volume, pod_node=node
    )


@pytest.mark.parametrize("claim", [UNASKED, a_claim(), a_claim(node="node-2")])
def test_its_claim_is_provisioned(claim):
    assert examined(claim, a_class(waits=True)) == Provision(a_class(waits=True))


@pytest.mark.parametrize(
    ("claim", "storage_class"),
    [
        pytest.param(UNASKED, a_class(), id="binds at once: it will be asked for"),
        pytest.param(UNASKED, None, id="no such class"),
        pytest.param(UNASKED, a_class(waits=True, provisioner="x"), id="class of another"),
        pytest.param(a_claim(annotations={}, volume_name="pv"), a_class(waits=True), id="bound"),
        pytest.param(a_claim(annotations={}, deleting=True), a_class(waits=True), id="going"),
        pytest.param(
            a_claim(annotations={STORAGE_PROVISIONER: "x"}),
            a_class(waits=True, provisioner="x"),
            id="asked of another",
        ),
    ],
)
def test_nothing_is_done_for_a_claim_that(claim, storage_class):
    assert examined(claim, storage_class) == SETTLED


def test_without_such_a_pod_nobody_has_asked():
    assert examined(UNASKED, a_class(waits=True), node="") == SETTLED
    assert examined(a_claim(), a_class(waits=True), node="") == SETTLED


def test_one_whose_volume_is_there_gets_no_other():
    own = a_persistent_volume()

    assert examined(UNASKED, a_class(waits=True), persistent_volume=own) == SETTLED


def test_what_no_claim_can_have_it_cannot_have_either():
    many = a_claim(annotations={}, modes=["ReadWriteMany"])

    assert isinstance(examined(many, a_class(waits=True)), Refuse)
