"""A values file of aws-ebs-csi-driver's chart: what becomes of each of its keys, as the page says it."""

from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

from tests.chart.helm import built, merged, one, refusal, rendered
from tests.chart.stock import (
    BESIDES,
    KEYS,
    besides,
    keys_that_are,
    kinds_for,
    nested,
    probe,
    said_of,
    table,
)

Json = dict[str, Any]
pytestmark = built

REFUSED: Json = {
    "fips": (True, "no validated cryptographic module"),
    "nameOverride": ("probe", "a cluster has one driver"),
    "fullnameOverride": ("probe", "a cluster has one driver"),
    "controller.enableNodeLocalVolumes": (True, "leave it false"),
    "controller.extraCreateMetadata": (False, "always tagged with their claim"),
    "controller.httpEndpoint": (":9090", "always on port 8080"),
    "controller.otelTracing": ({"otelServiceName": "probe"}, "there are no traces"),
    "node.containerSecurityContext.privileged": (False, "lets no other container mount volumes"),
    "node.otelTracing": ({"otelServiceName": "probe"}, "there are no traces"),
    "useOldCSIDriver": (True, "fsGroupPolicy is always File"),
}
# Odd values of keys that mean nothing.
IGNORED: Json = {
    "controller.batching": False,
    "controller.sdkDebugLog": True,
    "controller.userAgentExtra": "probe",
    "controller.socketDirVolume.emptyDir": {"medium": "Memory"},
    "node.probeDirVolume.emptyDir": {"medium": "Memory"},
    "node.serviceAccount.disableMutation": True,
    "node.enableWindows": True,
}


def test_the_page_has_one_row_for_each_key_and_no_other():
    assert len(KEYS) == 233
    assert [key for key in KEYS if said_of(key) not in ("taken", "refused", "nothing")] == []
    idle = [row for row in table() if not any(fnmatchcase(key, row) for key in KEYS)]
    assert idle == []


@cache
def rendered_without(start: str, kinds: tuple[str, ...]) -> list[Json]:
    """What the chart is before a key is set: the same for most."""
    return rendered(BESIDES.get(start, {}), kinds=kinds)


@pytest.mark.parametrize("key", keys_that_are("taken"))
def test_a_key_that_is_taken_changes_what_is_rendered(key: str):
    start = besides(key)
    kinds = kinds_for(key)

    after = merged(BESIDES.get(start, {}), nested(key, probe(key)))

    assert rendered(after, kinds=kinds) != rendered_without(start, kinds)


@pytest.mark.parametrize("key", keys_that_are("refused"))
def test_a_key_that_is_refused_says_why(key: str):
    value, sentence = REFUSED[key]

    assert sentence in refusal(nested(key, value))
    assert key in refusal(nested(key, value))


def test_keys_that_mean_nothing_are_accepted_and_change_nothing():
    odd = [
        nested(key, IGNORED.get(key, "probe"))
        for key in keys_that_are("nothing")
        if key in IGNORED or key.startswith("sidecars.")
    ]
    assert len(odd) == len(keys_that_are("nothing"))

    assert rendered(merged(*odd)) == rendered()


def test_the_stock_charts_numbers_of_verbosity_are_levels():
    for number, level in ((2, "info"), (3, "info"), (4, "debug"), (7, "debug")):
        objects = rendered({"controller": {"logLevel": number}})
        [options] = [
            each["data"]
            for each in objects
            if each["kind"] == "ConfigMap" and "controller" in each["metadata"]["name"]
        ]
        assert options["EBS_PROVISIONER_CONTROLLER_LOG_LEVEL"] == level


def test_the_stock_charts_grace_period_kills_no_mkfs():
    objects = rendered({"node": {"terminationGracePeriodSeconds": 30}})

    [pods] = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "DaemonSet"]
    assert pods["terminationGracePeriodSeconds"] == 120


@pytest.mark.parametrize("value", ["", None])
def test_where_the_stock_charts_budget_names_no_policy_nodes_can_be_drained(value: str | None):
    """That chart leaves it to Kubernetes then: IfHealthyBudget."""
    objects = rendered(nested("controller.podDisruptionBudget.unhealthyPodEvictionPolicy", value))

    budget = one(objects, "PodDisruptionBudget", "ebs-provisioner-controller")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
