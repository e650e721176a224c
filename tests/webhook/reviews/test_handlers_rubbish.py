"""Whatever object arrives, with parts missing, null or empty: there is an answer."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.webhook.edges import a_claim, a_csi_node, a_node, a_persistent_volume
from tests.webhook.reviews.pods import a_pod, claimed, ephemeral, inline, term
from tests.webhook.world import PATHS, World
from webhook.model import review
from webhook.model.review import Json

ZONE = "topology.kubernetes.io/zone"
B = "us-east-1b"
WHOLE: dict[str, Json] = {
    "mutate": a_persistent_volume(labels={ZONE: B}),
    "validate": a_persistent_volume(zone=B, labels={ZONE: B}),
    "claim": a_claim("new"),
    "pod": a_pod(
        *claimed("data"),
        ephemeral(),
        inline("aws://us-east-1a/vol-1"),
        node="node-1",
        selector={ZONE: B},
        terms=[term(ZONE, "In", B)],
    ),
    "new pod": {
        "metadata": {"name": "web", "annotations": {"team": "shop"}},
        "spec": {"volumes": claimed("data"), "schedulingGates": [{"name": "example.com/other"}]},
    },
    "class": {
        "metadata": {"name": "fast"},
        "provisioner": "ebs.csi.aws.com",
        "parameters": {"type": "gp3", "iops": "4000", "csi.storage.k8s.io/fstype": "ext4"},
        "mountOptions": ["noatime"],
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": [B]}]}],
    },
    "binding": {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "node-1"}},
}
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["", "__", "aws:///", "vol-*", B]))


def a_world() -> World:
    world = World(follows_moves=True)
    world.kube.kinds.add(("ebs-provisioner.io/v1alpha1", "volumemoves"))
    held = {"spec": {"claimName": "data", "to": {}}, "status": {"phase": "Held"}}
    world.kube.put("volumemoves", {"metadata": {"name": "to-b", "namespace": "shop"}, **held})
    world.kube.put("nodes", a_node())
    world.kube.put("csinodes", a_csi_node())
    world.kube.put("persistentvolumes", a_persistent_volume(zone=B))
    world.kube.put("persistentvolumeclaims", a_claim(bound="pv"))
    world.kube.put("pods", {**WHOLE["pod"], "metadata": {"name": "web", "namespace": "shop"}})
    world.ec2.zones["vol-1"] = "us-east-1a"
    return world


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every member of a document, by its keys and indexes."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, member in inside:
        found.append((*path, key))
        if isinstance(member, dict | list):
            found += places(member, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn, whole: Json) -> Json:
    """The document with some members missing, null, empty or another text.

    The API server has decoded it: nothing in it is of another type, and no text is null.
    """
    document = copy.deepcopy(whole)
    chosen = draw(st.lists(st.sampled_from(places(whole)), max_size=3, unique=True))
    for *parents, last in sorted(chosen, key=len, reverse=True):
        place: Any = document
        for key in parents:
            place = place[key]
        if isinstance(place, dict) and draw(st.booleans()):
            del place[last]
        elif isinstance(place[last], str):
            place[last] = draw(TEXTS)
        else:
            place[last] = draw(st.sampled_from([None, type(place[last])()]))
    return document


@pytest.mark.parametrize("about", PATHS)
@settings(max_examples=60)
@given(data=st.data())
def test_every_object_gets_an_answer_that_can_be_sent(about: str, data: st.DataObject):
    document = data.draw(damaged(WHOLE[about]))

    answer = a_world().answer(about, document)

    assert answer.why
    review.encode("u", answer)
    assert answer.allowed or answer.message


@pytest.mark.parametrize("about", PATHS)
def test_an_empty_object_is_let_through(about: str):
    assert a_world().answer(about, {}).allowed
