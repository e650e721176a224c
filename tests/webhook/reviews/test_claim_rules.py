import pytest

from tests.webhook.reviews.pods import SHOP, A, B, C, a_node_view, known
from webhook.model.cluster_view import ClassView, ClusterView
from webhook.model.review import Json
from webhook.reviews import claim_rules as rule

ANY = ClassView(waits=True, zones=None)
CROSSES = ClassView(waits=True, zones=frozenset({"us-east-1a"}), goes_across=True)


def a_claim(*, class_name: str | None = "fast", volume_name: str = "", **spec: Json) -> Json:
    written: Json = {"storageClassName": class_name, "volumeName": volume_name, **spec}
    return {"metadata": {"name": "data"}, "spec": written}


def a_clone(of: str = "old", **more: str) -> Json:
    return a_claim(dataSource={"kind": "PersistentVolumeClaim", "name": of, **more})


def of_class(*, waits: bool = True, zones: list[str] | None = None) -> dict[str, ClassView]:
    return {"fast": ClassView(waits, None if zones is None else frozenset(zones))}


def judged(claim, cluster):
    return rule.judge(claim, cluster, namespace=SHOP)


def warnings_of(claim, cluster):
    answer = judged(claim, cluster)
    assert answer.allowed
    assert answer.why == ("ZonesInDoubt" if answer.warnings else "ZonesAgree")
    return list(answer.warnings)


def test_a_class_that_binds_at_once_is_warned_of_while_there_are_several_zones():
    assert warnings_of(a_claim(), known(classes=of_class(waits=False))) == [
        (
            'claim "data": class "fast" binds immediately, so its volume may be created in us-east-1a or '
            "us-east-1b or us-east-1c whatever its pods need; with volumeBindingMode "
            "WaitForFirstConsumer it is created where they run"
        )
    ]


def test_a_class_that_binds_at_once_in_some_zones_is_warned_of_with_those():
    [warning] = warnings_of(a_claim(), known(classes=of_class(waits=False, zones=[A, B])))

    assert "created in us-east-1a or us-east-1b whatever" in warning


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(known(classes=of_class()), id="it waits"),
        pytest.param(known(classes=of_class(zones=[A, B])), id="it waits, in some zones"),
        pytest.param(known(classes=of_class(waits=False, zones=[A])), id="one zone"),
        pytest.param(
            known(classes=of_class(waits=False), nodes={"n": a_node_view(A)}),
            id="one zone of nodes",
        ),
        pytest.param(
            known(
                classes=of_class(waits=False),
                nodes={
                    "n": a_node_view(A),
                    "m": a_node_view(B, has_driver=False),
                    "bare": a_node_view(None),
                },
            ),
            id="one zone with the driver",
        ),
    ],
)
def test_a_class_whose_volume_can_only_be_where_its_pods_are_passes(cluster):
    assert warnings_of(a_claim(), cluster) == []


def test_a_zone_without_nodes_in_allowed_topologies_is_warned_of():
    nodes = {"n": a_node_view(A), "m": a_node_view(B), "gone": None, "bare": a_node_view(None)}
    cluster = known(classes=of_class(zones=[A, "us-east-1z", C]), nodes=nodes)

    assert warnings_of(a_claim(), cluster) == [
        (
            'claim "data": allowedTopologies of class "fast" name us-east-1c and us-east-1z, where there is no '
            "node; is it misspelled? Nodes are in us-east-1a and us-east-1b"
        )
    ]


def test_no_zone_is_called_empty_while_no_node_tells_its_zone():
    cluster = known(classes=of_class(zones=[A]), nodes={"bare": a_node_view(None)})

    assert warnings_of(a_claim(), cluster) == []


def test_allowed_topologies_that_leave_no_zone_are_warned_of():
    assert warnings_of(a_claim(), known(classes=of_class(zones=[]))) == [
        'claim "data": allowedTopologies of class "fast" allow no zone, so no volume can be created'
    ]


def test_a_clone_whose_source_is_pinned_to_another_zone_is_warned_of():
    assert warnings_of(a_clone(), known({"old": [C]}, classes=of_class(zones=[A, B]))) == [
        (
            'claim "data": it is a clone of claim "old", whose volume is in us-east-1c, but '
            'class "fast" only allows us-east-1a or us-east-1b; a clone is created in its source\'s zone: '
            "restore a snapshot instead, or let the class clone across zones with the annotation "
            'ebs-provisioner.io/clone-across-zones: "true"'
        )
    ]


@pytest.mark.parametrize("zones", [None, [A, B]], ids=["any zone", "its zone among others"])
def test_a_clone_that_binds_at_once_lies_beside_its_source_so_there_is_no_doubt(zones):
    cluster = known({"old": [A]}, classes=of_class(waits=False, zones=zones))

    assert warnings_of(a_clone(), cluster) == []
    assert "binds immediately" in warnings_of(a_claim(), cluster)[0]


@pytest.mark.parametrize(
    ("zones", "of"),
    [([B, C], "old"), (None, "new")],
    ids=["class goes elsewhere", "no such source"],
)
def test_a_clone_that_binds_at_once_somewhere_is_warned_of(zones, of):
    cluster = known({"old": [A]}, classes=of_class(waits=False, zones=zones))

    assert "binds immediately" in warnings_of(a_clone(of), cluster)[0]


@pytest.mark.parametrize("named", [{}, {"namespace": SHOP}], ids=["no namespace", "its own"])
def test_a_clone_is_told_by_its_reference_too(named: dict[str, str]):
    ref = {"kind": "PersistentVolumeClaim", "name": "old", **named}
    cluster = known({"old": [C]}, classes=of_class(zones=[A]))

    answer = rule.judge(a_claim(dataSourceRef=ref), cluster, namespace=SHOP)

    assert len(answer.warnings) == 1


def test_nothing_is_told_of_a_claim_of_another_namespace_which_is_never_cloned():
    ref = {"kind": "PersistentVolumeClaim", "name": "old", "namespace": SHOP}
    claim, cluster = a_claim(dataSourceRef=ref), known({"old": [C]}, classes=of_class(zones=[A]))

    assert rule.references(claim, "other").claims == ()
    assert rule.judge(claim, cluster, namespace="other").warnings == ()


def test_of_two_sources_the_one_counts_that_the_provisioner_takes():
    old, new = ({"kind": "PersistentVolumeClaim", "name": name} for name in ("old", "new"))
    claim = a_claim(dataSource=old, dataSourceRef=new)

    assert rule.references(claim, SHOP).claims == (f"{SHOP}/old",)


@pytest.mark.parametrize(
    ("claim", "cluster"),
    [
        pytest.param(a_clone(), known({"old": [A]}, classes=of_class(zones=[A, B])), id="allowed"),
        pytest.param(a_clone(), known({"old": [C]}, classes=of_class()), id="no allowedTopologies"),
        pytest.param(a_clone(), known({"old": None}, classes=of_class(zones=[A])), id="open"),
        pytest.param(a_clone("new"), known(classes=of_class(zones=[A])), id="no such source"),
        pytest.param(
            a_clone(), known(unbound={"old": "fast"}, classes=of_class(zones=[A])), id="unbound"
        ),
        pytest.param(
            a_clone(),
            known({"old": [C]}, classes={"fast": CROSSES}),
            id="a class that clones across zones",
        ),
        pytest.param(
            a_claim(dataSource={"kind": "VolumeSnapshot", "name": "old"}),
            known({"old": [C]}, classes=of_class(zones=[A])),
            id="a snapshot belongs to a Region",
        ),
        pytest.param(
            a_clone(apiGroup="example.com"),
            known({"old": [C]}, classes=of_class(zones=[A])),
            id="a populator's",
        ),
    ],
)
def test_a_source_that_is_not_known_to_be_elsewhere_passes(claim, cluster):
    assert warnings_of(claim, cluster) == []


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(a_claim(volume_name="pv-1"), id="bound beforehand"),
        pytest.param(a_claim(class_name="nfs"), id="class of another driver"),
        pytest.param(a_claim(class_name=""), id="no class"),
        pytest.param(a_claim(class_name=None), id="null class"),
        pytest.param({}, id="empty"),
        pytest.param({"spec": 5}, id="rubbish"),
    ],
)
def test_a_claim_that_gets_no_volume_of_ours_passes(claim):
    answer = judged(claim, known(classes=of_class(waits=False)))

    assert (answer.allowed, answer.why, answer.warnings) == (True, "NothingToDo", ())


def test_a_claim_asks_for_its_class_and_source():
    references = rule.references(a_clone(), SHOP)

    assert (references.claims, references.classes) == (("shop/old",), ("fast",))


def test_a_claim_without_class_and_source_asks_for_nothing():
    references = rule.references({}, SHOP)

    assert (references.claims, references.classes) == ((), ())


def test_nothing_known_is_nothing_said():
    assert judged(a_clone(), ClusterView()).why == "NothingToDo"
