"""Keys that only this chart has, and those of a group of nodes: none of them does nothing."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from tests.chart.helm import CHART_FOLDER, built, merged, refusal, rendered
from tests.chart.stock import KEYS, MONITORS, NOTE, SOURCE, VARIABLE, kinds_for, nested, probe

Json = dict[str, Any]
pytestmark = built

SCHEMA: Json = json.loads((CHART_FOLDER / "values.schema.json").read_text())

WEBHOOK: Json = {"webhook": {"enabled": True}}
SCRAPED: Json = {name: {"enableMetrics": True} for name in ("controller", "node", "webhook")}
WEBHOOK_SCRAPED: Json = merged(SCRAPED, WEBHOOK)
RULES: Json = merged(SCRAPED, {"prometheusRule": {"enabled": True}})
RELABELINGS = [{"action": "labeldrop", "regex": "probe"}]
# Key: what has to be set besides, and a value that is not the default.
CASES: dict[str, tuple[Json, Any]] = {
    "image.containerRegistry": ({}, "registry.example/"),
    "image.digest": ({}, f"sha256:{'0' * 64}"),
    "controller.resources.claims": ({}, [{"name": "probe"}]),
    "controller.updateStrategy.rollingUpdate.maxSurge": ({}, 2),
    "controller.serviceMonitor.relabelings": (SCRAPED, RELABELINGS),
    "controller.reconcileExtraVolumeTags": ({"controller": {"extraVolumeTags": NOTE}}, True),
    "controller.orphanSweep": ({}, "report"),
    "controller.initializeNodes": ({"controller": {"k8sTagClusterId": "probe"}}, True),
    "controller.releaseDeadNodes": ({}, True),
    "controller.volumeMoves": ({}, True),
    "controller.leaderElectionNamespace": ({}, "probe"),
    "node.resources.claims": ({}, [{"name": "probe"}]),
    "node.serviceMonitor.relabelings": (SCRAPED, RELABELINGS),
    "node.createNamespace": ({}, False),
    "csiDriver.create": ({}, False),
    "noInlineVolumes": ({}, True),
    "prometheusRule.enabled": (SCRAPED, True),
    "prometheusRule.labels": (RULES, NOTE),
    "grafanaDashboard.enabled": ({}, True),
    "grafanaDashboard.labels": ({"grafanaDashboard": {"enabled": True}}, NOTE),
    "webhook.enabled": ({}, True),
    "webhook.enableMetrics": (WEBHOOK, True),
    "webhook.enablePrometheusAnnotations": (WEBHOOK_SCRAPED, False),
    "webhook.serviceMonitor.labels": (WEBHOOK_SCRAPED, NOTE),
    "webhook.serviceMonitor.interval": (WEBHOOK_SCRAPED, "99s"),
    "webhook.serviceMonitor.relabelings": (WEBHOOK_SCRAPED, RELABELINGS),
    "webhook.serviceMonitor.forceEnable": (WEBHOOK_SCRAPED, True),
    "webhook.loggingFormat": (WEBHOOK, "text"),
    "webhook.logLevel": (WEBHOOK, "debug"),
    "webhook.additionalArgs": (WEBHOOK, ["--ec2-rate=x2"]),
    "webhook.env": (WEBHOOK, VARIABLE),
    "webhook.envFrom": (WEBHOOK, SOURCE),
    "webhook.priorityClassName": (WEBHOOK, "probe"),
    "webhook.nodeSelector": (WEBHOOK, NOTE),
    "webhook.affinity": (WEBHOOK, {"podAntiAffinity": {}}),
    "webhook.tolerations": (WEBHOOK, []),
    "webhook.podAnnotations": (WEBHOOK, NOTE),
    "webhook.podLabels": (WEBHOOK, NOTE),
    "webhook.resources.requests": (WEBHOOK, {"cpu": "77m"}),
    "webhook.resources.limits": (WEBHOOK, {"memory": "777Mi"}),
    "webhook.resources.claims": (WEBHOOK, [{"name": "probe"}]),
    "webhook.replicaCount": (WEBHOOK, 3),
    "webhook.strict": (WEBHOOK, True),
    "webhook.region": (WEBHOOK, "eu-central-1"),
    "webhook.zoneGuard": (WEBHOOK, True),
    "webhook.certificates": (WEBHOOK, "cert-manager"),
    "webhook.caBundle": (
        merged(WEBHOOK, {"webhook": {"certificates": "provided", "caBundle": "QQ=="}}),
        "Qg==",
    ),
    "webhook.certManager.issuerRef": (
        merged(WEBHOOK, {"webhook": {"certificates": "cert-manager"}}),
        {"name": "probe"},
    ),
    "webhook.callerTokenSecret": (WEBHOOK, "probe"),
    "webhook.egressPorts": (WEBHOOK, [16443]),
    "webhook.hostNetwork": (WEBHOOK, True),
    "webhook.namespaceOverride": (WEBHOOK, "probe"),
    "webhook.serviceAccount.create": (WEBHOOK, False),
    "webhook.serviceAccount.name": (WEBHOOK, "probe"),
    "webhook.serviceAccount.annotations": (WEBHOOK, NOTE),
    "webhook.serviceAccount.automountServiceAccountToken": (WEBHOOK, False),
    "helmTester.storageClass": ({}, "probe"),
    "helmTester.nodeSelector": ({}, NOTE),
}
ELSEWHERE = {
    "global",  # Helm's own
    # What they are about is asked of a cluster: tests/cluster/test_chart.py.
    *("besideStock.controller", "besideStock.node", "allowSkippedVersions"),
    "node.updateStrategy.rollingUpdate.maxSurge",  # refused
}


def leaves(schema: Json, path: str = "") -> Iterator[str]:
    """The keys of a schema that have none below them."""
    parts = [schema, *schema.get("allOf", ())]
    parts = [
        SCHEMA["definitions"][each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        for each in parts
    ]
    properties = merged(*(each.get("properties", {}) for each in parts))
    if not properties:
        yield path
    for key, below in properties.items():
        yield from leaves(below, f"{path}.{key}".removeprefix("."))


def within(key: str, others: Any) -> bool:
    """Whether a key is one of others, or above or below one."""
    return any(
        f"{key}.".startswith(f"{each}.") or f"{each}.".startswith(f"{key}.") for each in others
    )


def test_each_key_that_the_stock_chart_has_not_has_its_case():
    own = {key for key in leaves(SCHEMA) if not within(key, KEYS)}

    assert {key for key in own if not within(key, {*CASES, *ELSEWHERE})} == set()
    assert {key for key in CASES if not within(key, own)} == set()


@cache
def before(values: str, kinds: tuple[str, ...]) -> list[Json]:
    """What the chart is before a key is set: the same for most."""
    return rendered(yaml.safe_load(values), kinds=kinds)


@pytest.mark.parametrize("key", CASES)
def test_a_key_of_our_own_changes_what_is_rendered(key: str):
    start, value = CASES[key]
    kinds = kinds_for(key)

    after = rendered(merged(start, nested(key, value)), kinds=kinds)

    assert after != before(yaml.safe_dump(start), kinds)


# -- groups of nodes

BIG: Json = {"nodeSelector": {"size": "big"}}
OF_GROUPS: Json = {
    "affinity": {"podAntiAffinity": {}},
    "containerSecurityContext": {"readOnlyRootFilesystem": False},
    "nodeSelector": {"size": "huge"},
    "resources.claims": [{"name": "probe"}],
    "resources.limits": {"memory": "777Mi"},
    "resources.requests": {"memory": "77Mi"},
    "securityContext": {"runAsUser": 77},
    "serviceMonitor.relabelings": RELABELINGS,
    "updateStrategy.rollingUpdate.maxUnavailable": 7,
}
BESIDES_OF_GROUPS: dict[str, Json] = {
    "enablePrometheusAnnotations": {"enableMetrics": True},
    "serviceMonitor": {"enableMetrics": True},
    "tolerations": {"tolerateAllTaints": False},
}
ABOUT_ALL_GROUPS: dict[str, tuple[Any, str]] = {
    "createNamespace": (False, "all groups are in the namespace of `node`"),
    "enableLinux": (False, "all groups are installed or none"),
    "namespaceOverride": ("probe", "all groups are in the namespace of `node`"),
    "otelTracing": ({"otelServiceName": "probe"}, "there are no traces"),
    "selinux": (True, "the CSIDriver object says for all nodes"),
    "serviceAccount.annotations": (NOTE, "all groups have the account of `node`"),
    "serviceAccount.automountServiceAccountToken": (False, "all groups have the account of `node`"),
    "serviceAccount.create": (False, "all groups have the account of `node`"),
    "serviceAccount.disableMutation": (True, "all groups have the account of `node`"),
    "serviceAccount.name": ("probe", "all groups have the account of `node`"),
    "updateStrategy.rollingUpdate.maxSurge": (1, "maxSurge must be 0"),
}
MEAN_NOTHING = {"enableWindows", "probeDirVolume"}
"""In `node` too."""
GROUP_KEYS = [*leaves(SCHEMA["definitions"]["node"])]


def of_big(*values: Json) -> Json:
    return {"additionalDaemonSets": {"big": merged(BIG, *values)}}


@pytest.mark.parametrize(
    "key", [each for each in GROUP_KEYS if each not in MEAN_NOTHING | ABOUT_ALL_GROUPS.keys()]
)
def test_a_key_of_a_group_changes_what_is_rendered(key: str):
    [start] = [each for of, each in BESIDES_OF_GROUPS.items() if key.startswith(of)] or [{}]
    value = OF_GROUPS[key] if key in OF_GROUPS else probe(f"node.{key}")
    kinds = () if key.endswith("forceEnable") else MONITORS

    after = rendered(of_big(start, nested(key, value)), kinds=kinds)

    assert after != before(yaml.safe_dump(of_big(start)), kinds)


@pytest.mark.parametrize("key", ABOUT_ALL_GROUPS)
def test_a_key_that_is_about_all_groups_is_refused_in_one(key: str):
    value, sentence = ABOUT_ALL_GROUPS[key]
    assert key in GROUP_KEYS

    assert sentence in refusal(of_big(nested(key, value)))


def test_a_group_may_be_without_selinux():
    assert rendered({"node": {"selinux": True}, **of_big({"selinux": False})})
