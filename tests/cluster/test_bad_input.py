"""Claims, classes and nodes that cannot be: told clearly, nothing leaked, and it goes on by itself."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from provisioner.sandbox import nodes
from tests.cluster import calm
from tests.cluster.cluster import (
    CLASSES,
    CSI_NODES,
    SELECTED_NODE,
    Cluster,
    Json,
    handle_of,
    token_of,
)
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()


def topologies(*zones: str, key: str = "topology.kubernetes.io/zone") -> Json:
    return {"matchLabelExpressions": [{"key": key, "values": list(zones)}]}


async def make_class_again(place: Place, **changes: Any) -> None:
    """What a user does about a class that is wrong: most of it cannot be changed."""
    await place.remove(f"{CLASSES}/{place.name}-class")
    await place.storage_class(**changes)


async def nothing_was_asked_of_ec2(place: Place, claim: Json) -> None:
    assert await place.cluster.calls(token_of(claim)) == []
    assert await place.volumes() == []


# -- objects that Python's limit of recursion is too low for


@together.test
async def test_a_claim_whose_managed_fields_are_nested_too_deep_keeps_no_other_from_its_volume(
    place: Place,
):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * limit)  # of the test's own JSON; the controller has Python's
    name = await place.storage_class()
    # Any claim's author may write this; the API server keeps it, and shows it in each list and watch.
    fields: Json = {}
    for _ in range(2 * limit):
        fields = {"f:a": fields}
    managed = {"manager": "deep", "operation": "Update", "apiVersion": "v1"}
    deep = {
        "metadata": {
            "name": "deep",
            "managedFields": [managed | {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}}],
        },
        "spec": {
            "storageClassName": await place.storage_class("waits", waits=True),
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    try:
        made = await place.api.create(place.claims, deep)
        assert json.dumps(made["metadata"]["managedFields"]).count("f:a") >= 2 * limit
        await place.claim(name)

        await place.bound()
        await place.remove(f"{place.claims}/deep")
    finally:
        sys.setrecursionlimit(limit)


# -- classes


@together.test
async def test_an_unknown_parameter_is_refused_by_name_until_the_class_is_right(place: Place):
    name = await place.storage_class(parameters={"type": "gp3", "colour": "green"})
    claim = await place.claim(name)

    await place.told("colour", name)
    await nothing_was_asked_of_ec2(place, claim)

    await make_class_again(place)
    await place.bound()


@together.test
async def test_more_iops_than_the_size_can_have_are_refused_before_ec2_is_asked(place: Place):
    name = await place.storage_class(parameters={"type": "gp3", "iops": "16000"})
    claim = await place.claim(name)

    await place.told("3000 IOPS", "500 for each GiB", "16000")
    await nothing_was_asked_of_ec2(place, claim)

    await make_class_again(place, parameters={"type": "gp3", "iops": "3000"})
    await place.bound()


@together.test
async def test_a_zone_that_does_not_exist_is_named_until_the_class_names_another(place: Place):
    name = await place.storage_class(allowedTopologies=[topologies("us-east-1z")])
    await place.claim(name)

    await place.told("us-east-1z", "InvalidZone.NotFound", "allowedTopologies")

    await make_class_again(place, allowedTopologies=[topologies("us-east-1b")])
    pv = await place.bound()
    volume = await place.cluster.volume(handle_of(pv))
    assert volume is not None
    assert volume["AvailabilityZone"] == "us-east-1b"


@together.test
async def test_a_class_whose_terms_leave_no_zone_is_told_so(place: Place):
    both = [
        *topologies("us-east-1a")["matchLabelExpressions"],
        *topologies("us-east-1b", key="topology.ebs.csi.aws.com/zone")["matchLabelExpressions"],
    ]
    name = await place.storage_class(allowedTopologies=[{"matchLabelExpressions": both}])
    claim = await place.claim(name)

    await place.told("allowedTopologies", name, "no zone")
    await nothing_was_asked_of_ec2(place, claim)

    await make_class_again(place)
    await place.bound()


@together.test
async def test_a_class_deleted_before_its_volume_is_named_until_it_is_back(place: Place):
    name = await place.storage_class(parameters={"type": "gp3", "colour": "green"})
    await place.claim(name)
    await place.told("colour")

    await place.remove(f"{CLASSES}/{name}")
    await place.told("StorageClass", name, "does not exist")

    await place.storage_class()
    await place.bound()


@together.test
async def test_a_class_deleted_half_way_does_not_stop_what_was_sent(place: Place):
    claim = await place.waiting_claim()
    token = token_of(claim)
    await place.cluster.fault(
        "CreateVolume", "reset", when="after", n=2, match={"ClientToken": token}
    )
    await place.choose_node(claim)
    await place.is_requested(token)

    await place.remove(f"{CLASSES}/{place.name}-waits")

    await place.bound()
    assert len(await place.volumes()) == 1


# -- claims


@together.test
async def test_an_absurd_size_is_refused_before_ec2_is_asked(place: Place):
    name = await place.storage_class()
    claim = await place.claim(name, resources={"requests": {"storage": "10e399"}})

    await place.told("10e399", name, "65536 GiB")
    await nothing_was_asked_of_ec2(place, claim)


@together.test
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"selector": {"matchLabels": {"disk": "fast"}}}, ["selector"]),
        ({"accessModes": ["ReadWriteMany"]}, ["ReadWriteMany", "ReadWriteOnce"]),
        ({"volumeAttributesClassName": "gold"}, ["VolumeAttributesClass", "gold"]),
    ],
    ids=["a selector", "ReadWriteMany", "a VolumeAttributesClass"],
)
async def test_what_is_not_possible_is_told_once_and_never_made(
    place: Place, spec: Json, words: list[str]
):
    claim = await place.claim(await place.storage_class(), **spec)

    await place.told(*words)
    await one_event_and_no_volume(place, claim)


@together.test
@pytest.mark.parametrize("field", ["dataSource", "dataSourceRef"])
@pytest.mark.parametrize(
    ("kind", "group"),
    [("VolumeSnapshot", "snapshot.storage.k8s.io"), ("PersistentVolumeClaim", "")],
)
async def test_a_copy_is_never_replaced_by_an_empty_volume(
    place: Place, field: str, kind: str, group: str
):
    source = {"kind": kind, "name": "origin"} | ({"apiGroup": group} if group else {})
    claim = await place.claim(await place.storage_class(), "data", **{field: source})

    await place.told("'origin'")
    await one_event_and_no_volume(place, claim)


@together.test
async def test_a_foreign_data_source_is_left_to_its_populator(place: Place):
    source = {"apiGroup": "example.com", "kind": "Dump", "name": "monday"}
    claim = await place.claim(await place.storage_class(), dataSourceRef=source)

    async def said() -> Json | None:
        return next((e for e in await place.events() if "populator" in e["message"]), None)

    event = await place.cluster.until("an event about the populator", said)
    assert event["type"] == "Normal"
    await one_event_and_no_volume(place, claim)


async def one_event_and_no_volume(place: Place, claim: Json) -> None:
    """Not even when the claim is looked at again: marked twice, then one that does get a volume."""
    for number in range(2):
        labels = {"metadata": {"labels": {"look": str(number)}}}
        await place.api.patch(f"{place.claims}/data", labels)
    await place.claim(f"{place.name}-class", "other")
    await place.bound("other")

    events = await place.events()
    assert [event["count"] for event in events] == [1]
    await place.api.delete(f"{place.claims}/other")
    assert await place.cluster.calls(token_of(claim)) == []


@together.test
@pytest.mark.parametrize("lost", [False, True], ids=["slow answer", "lost answer"])
async def test_a_claim_deleted_half_way_leaves_nothing(place: Place, *, lost: bool):
    claim = await place.waiting_claim()
    token = token_of(claim)
    how: Json = {"do": "reset", "when": "after"} if lost else {"do": "delay", "delay_s": 2.0}
    await place.cluster.fault("CreateVolume", match={"ClientToken": token}, **how)
    await place.choose_node(claim)
    await place.is_requested(token)

    await place.remove(f"{place.claims}/data")

    async def made_and_gone() -> bool:
        steps = ("volume provisioned", "volume deleted")
        return all(place.cluster.said(step, claim["metadata"]["uid"]) for step in steps)

    await place.cluster.until("the volume was made, and is gone again", made_and_gone)
    assert await place.volumes() == []


@together.test
async def test_a_claim_deleted_before_anything_was_sent_is_never_provisioned(place: Place):
    name = await place.storage_class(parameters={"type": "gp3", "colour": "green"})
    claim = await place.claim(name)
    await place.told("colour")

    await place.remove(f"{place.claims}/data")
    await make_class_again(place)
    await place.claim(name, "other")
    await place.bound("other")

    assert await place.cluster.calls(token_of(claim)) == []


# -- nodes


@together.test
async def test_a_chosen_node_that_has_vanished_is_chosen_anew(place: Place):
    claim = await place.waiting_claim()
    pod = await place.pod(claim, gated=True)
    async with place.cluster.extra_node() as node:
        gone = node.private_dns_name
    await place.choose_node(claim, gone)

    await place.told(gone, "no longer exists")
    await place.lift_gate(pod)

    await place.bound()
    assert await place.node_of(pod) != gone


@together.test
async def test_a_chosen_node_without_the_driver_is_told_until_it_registers(place: Place):
    async with place.cluster.extra_node() as node:
        name = node.private_dns_name
        before = await place.api.get(f"{CSI_NODES}/{name}")
        await place.api.patch(f"{CSI_NODES}/{name}", {"spec": {"drivers": []}})
        claim = await place.waiting_claim()
        await place.choose_node(claim, name)

        await place.told(nodes.DRIVER, "not registered", name)
        assert (await place.api.get(f"{place.claims}/data"))["metadata"]["annotations"][
            SELECTED_NODE
        ] == name

        await place.api.patch(f"{CSI_NODES}/{name}", {"spec": before["spec"]})
        await place.bound()


async def test_nothing_of_this_was_a_tight_loop(cluster: Cluster):
    await calm.assert_calm(cluster)
