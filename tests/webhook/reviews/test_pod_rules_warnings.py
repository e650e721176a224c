"""Pods that are let through with a warning."""

import pytest

from tests.webhook.reviews.pods import (
    ELSEWHERE,
    ZONE,
    A,
    B,
    a_node_view,
    a_pod,
    claimed,
    ephemeral,
    inline,
    known,
)
from tests.webhook.reviews.verdicts import judged, let_through, warning_of
from webhook.model.cluster_view import (
    ClassView,
)
from webhook.model.review import WARNING_MOST_CHARACTERS, cut

ZONAL = {"zonal": ClassView(waits=True, zones=frozenset({A}))}


def test_an_ephemeral_volume_whose_class_allows_no_zone_of_the_pod_is_warned_of():
    pod = a_pod(ephemeral("scratch"), name=None, selector={ZONE: B})

    assert warning_of(pod, known(classes=ZONAL)) == (
        'pod "web-…": ephemeral volume "scratch" of class "zonal" can only get a volume in us-east-1a '
        "(allowedTopologies), but the pod's nodeSelector or required node affinity leaves only "
        "us-east-1b; use a class for that zone, or it stays Pending"
    )


@pytest.mark.parametrize(
    ("pod", "clause"),
    [
        pytest.param(a_pod(*claimed("new"), selector={ZONE: B}), "only us-east-1b", id="selector"),
        pytest.param(a_pod(*claimed("new"), node="node-b"), "a node in us-east-1b", id="node"),
        pytest.param(a_pod(*claimed("new", "logs")), 'claim "logs" is bound', id="other volume"),
    ],
)
def test_a_class_that_allows_no_zone_of_the_pod_is_warned_of(pod, clause):
    cluster = known({"logs": [B]}, unbound={"new": "zonal"}, classes=ZONAL)

    warning = warning_of(pod, cluster)

    assert 'claim "new" can only get a volume in us-east-1a' in warning
    assert '"zonal"' not in warning  # who asks may not be one who may read the claim
    assert clause in warning


def test_a_claim_that_is_used_twice_is_warned_of_once():
    cluster = known(unbound={"new": "zonal"}, classes=ZONAL)

    assert warning_of(a_pod(*claimed("new", "new"), selector={ZONE: B}), cluster)


def test_a_class_that_allows_a_zone_of_the_pod_passes():
    pod = a_pod(*claimed("new"), selector={ZONE: A}, node="node-a")

    assert let_through(pod, known(unbound={"new": "zonal"}, classes=ZONAL), why="NothingToDo")


def test_a_zone_without_a_node_that_takes_pods_is_warned_of():
    nodes = {"n": a_node_view(A, schedulable=False), "m": a_node_view(B), "gone": None}

    assert warning_of(a_pod(*claimed("data")), known({"data": [A]}, nodes=nodes)) == (
        'pod "web": claim "data" is bound to a volume in us-east-1a, but no node in '
        "us-east-1a accepts pods now; it stays Pending until one does"
    )


def test_a_zone_of_a_class_without_a_node_that_takes_pods_is_warned_of():
    cluster = known(unbound={"new": "zonal"}, classes=ZONAL, nodes={"m": a_node_view(B)})

    assert "but no node there accepts pods now" in warning_of(a_pod(*claimed("new")), cluster)


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param({}, id="no node known"),
        pytest.param({"n": a_node_view(None)}, id="no zone known"),
        pytest.param({"n": a_node_view(B), "m": a_node_view(A)}, id="a node that takes pods"),
    ],
)
def test_a_zone_is_not_called_deserted_without_knowing(nodes):
    assert let_through(a_pod(*claimed("data")), known({"data": [A]}, nodes=nodes))


def test_only_the_zones_that_a_pod_wants_need_a_node_that_takes_pods():
    nodes = {"n": a_node_view(A), "m": a_node_view(B, schedulable=False)}
    classes = {"zonal": ClassView(waits=True, zones=frozenset({A, B}))}
    cluster = known({"data": [A, B]}, unbound={"new": "zonal"}, classes=classes, nodes=nodes)

    answer = judged(a_pod(*claimed("data", "new"), selector={ZONE: B}), cluster)

    assert len(answer.warnings) == 2
    assert all("no node" in warning for warning in answer.warnings)
    assert let_through(a_pod(*claimed("data", "new"), selector={ZONE: A}), cluster)


def test_a_pod_with_a_node_does_not_ask_for_one_that_takes_pods():
    nodes = {"cordoned": a_node_view(A, schedulable=False)}
    cluster = known(unbound={"new": "zonal"}, classes=ZONAL, nodes=nodes)

    assert let_through(a_pod(*claimed("new"), node="cordoned"), cluster, why="NothingToDo")

    assert let_through(a_pod(*claimed("data"), node="cordoned"), known({"data": [A]}, nodes=nodes))


def test_a_volume_that_no_node_can_use_is_warned_of():
    warning = warning_of(a_pod(*claimed("data")), known({"data": []}))

    assert warning == (
        'pod "web": claim "data" is bound to a PersistentVolume whose nodeAffinity contradicts '
        "itself, so no node can use it; have it recreated"
    )


def test_the_zone_in_an_inline_volumes_id_is_only_a_hint():
    pod = a_pod(inline("aws://us-east-1a/vol-0a1"), inline("vol-0a1"), node="node-b")

    assert warning_of(pod, known()) == (
        'pod "web": its inline volume vol-0a1 is in us-east-1a according to its volumeID, but spec.nodeName '
        'is "node-b", a node in us-east-1b; if so, it can never be attached there'
    )


def test_nobody_is_told_more_warnings_than_they_can_read():
    volumes = [ephemeral(f"v{number}") for number in range(500)]

    answer = judged(a_pod(*volumes, selector={ZONE: B}), known(classes=ZONAL))

    assert len(answer.warnings) == 8


def test_no_more_hints_are_held_against_a_pods_terms_than_a_pod_has_inline_volumes():
    volumes = [inline(f"aws://us-east-1b/vol-{number}") for number in range(20)]
    elsewhere = inline("aws://us-east-1c/vol-99")

    assert let_through(a_pod(*volumes, elsewhere, node="node-b"), known(), why="NothingToDo")
    assert warning_of(a_pod(*volumes[:7], elsewhere, node="node-b"), known())


def test_a_usual_warning_is_not_cut_off():
    pod = a_pod(*claimed("data-database-0"), name="database-0", selector={ZONE: ELSEWHERE})
    cluster = known(unbound={"data-database-0": "zonal"}, classes=ZONAL)

    warning = warning_of(pod, cluster)

    assert cut(warning) == warning
    assert len(warning) <= WARNING_MOST_CHARACTERS
