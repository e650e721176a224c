from tests.webhook.reviews.pods import A, B, a_node_view, known
from webhook.model.cluster_view import (
    ClaimView,
    ClassView,
    ClusterView,
    Evidence,
    References,
    VolumeView,
    collect,
)

CLAIMS = {"shop/data": ClaimView("pv-1", "fast"), "shop/new": ClaimView("", "slow")}
VOLUMES = {"pv-1": VolumeView("vol-1", frozenset({A})), "pv-2": VolumeView("vol-2", None)}
CLASSES = {"slow": ClassView(waits=True, zones=None), "fast": ClassView(waits=True, zones=None)}
NODES = {"n": a_node_view(B)}


def gathered_for(references, **more):
    return collect(
        references,
        claim=CLAIMS.get,
        volume=VOLUMES.get,
        backed_by=lambda volume_id: ("pv-2",) if volume_id == "vol-9" else (),
        storage_class=CLASSES.get,
        nodes=NODES,
        node_views=NODES.values(),
        **more,
    )


def test_volumes_of_bound_claims_and_classes_of_others_are_gathered():
    cluster = gathered_for(References(claims=("shop/data", "shop/new", "shop/none")))

    assert cluster == ClusterView(
        claims={**CLAIMS, "shop/none": None},
        volumes={"pv-1": VOLUMES["pv-1"]},
        classes={"slow": CLASSES["slow"]},
        nodes=NODES,
        node_views=cluster.node_views,
    )


def test_what_is_named_outright_is_gathered():
    cluster = gathered_for(References(inline={"vol-9": ""}, classes=("fast",)), zones={"vol-9": A})

    assert cluster.volumes == {"pv-2": VOLUMES["pv-2"]}
    assert cluster.classes == {"fast": CLASSES["fast"]}
    assert cluster.zones == {"vol-9": A}


def test_readings_are_cut_down_to_what_a_denial_rests_on():
    cluster = known({"data": [A], "logs": [B]}, zones={"vol-9": A})
    evidence = Evidence(
        frozenset({"shop/data", "shop/x"}), frozenset({"pv-data"}), frozenset({"node-b"})
    )

    assert cluster.only(evidence) == ClusterView(
        claims={"shop/data": cluster.claims["shop/data"], "shop/x": None},
        volumes={"pv-data": cluster.volumes["pv-data"]},
        nodes={"node-b": cluster.nodes["node-b"]},
        zones={"vol-9": A},
    )


def test_a_claim_that_is_not_bound_has_no_volume_whatever_else_is_known():
    cluster = ClusterView(claims={"shop/new": CLAIMS["shop/new"]}, volumes={"": VOLUMES["pv-1"]})

    assert cluster.volume_of("shop/new") == ("", None)
