"""The keys of aws-ebs-csi-driver's chart, what the page says of them, and a value to try each with."""

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.chart.helm import CHART_FOLDER
from tests.documents import DOCS

Json = dict[str, Any]

PAGE = DOCS / "reference/chart-values.md"
KEYS = [
    line
    for line in (Path(__file__).parent / "stock_keys.txt").read_text().splitlines()
    if not line.startswith("#")
]
MONITORS = ("monitoring.coreos.com/v1/ServiceMonitor",)
SNAPSHOTS = ("snapshot.storage.k8s.io/v1",)

VOLUME = [{"name": "more", "emptyDir": {}}]
MOUNT = [{"name": "more", "mountPath": "/more"}]
WAIT = [{"name": "wait", "image": "busybox:1", "command": ["true"]}]
VARIABLE = [{"name": "PROBE", "value": "1"}]
SOURCE = [{"secretRef": {"name": "probe"}}]
NOTE = {"probe": "1"}
TERMS = [{"matchExpressions": [{"key": "probe", "operator": "Exists"}]}]

# For keys of which any value is taken: one that is not the default.
PROBES: Json = {
    "image.repository": "registry.example/ebs-provisioner",
    "image.tag": "9.9.9",
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "probe"}],
    "controller.additionalArgs": ["--orphan-sweep=report"],
    "node.additionalArgs": ["--volume-attach-limit=3"],
    "controller.defaultFsType": "xfs",
    "controller.k8sTagClusterId": "probe",
    "controller.region": "eu-central-1",
    "controller.replicaCount": 3,
    "controller.priorityClassName": "probe",
    "node.priorityClassName": "probe",
    "controller.podDisruptionBudget.unhealthyPodEvictionPolicy": "IfHealthyBudget",
    "controller.podDisruptionBudget.maxUnavailable": 2,
    "controller.podDisruptionBudget.minAvailable": 1,
    "controller.updateStrategy.type": "Recreate",
    "node.updateStrategy.type": "OnDelete",
    "controller.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": TERMS[0]}
    ],
    "controller.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
    ],
    "node.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms": TERMS,
    "controller.topologySpreadConstraints": [
        {"topologyKey": "probe", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "node.kubeletPath": "/data/kubelet",
    "node.metadataSources": "kubernetes",
    "node.namespaceOverride": "probe",
    "node.reservedVolumeAttachments": 3,
    "node.volumeAttachLimit": 3,
    "node.terminationGracePeriodSeconds": 600,
    "additionalDaemonSets": {"big": {"nodeSelector": {"size": "big"}, "volumeAttachLimit": 9}},
    "storageClasses": [{"name": "probe"}],
    "volumeSnapshotClasses": [{"name": "probe", "deletionPolicy": "Delete"}],
    "nodeAllocatableUpdatePeriodSeconds": 30,
    "helmTester.image": "busybox:1",
}
# For all other keys that are taken, by how they end: the first that fits.
ENDINGS: Json = {
    "loggingFormat": "text",
    "logLevel": 5,
    "env": VARIABLE,
    "envFrom": SOURCE,
    "volumes": VOLUME,
    "volumeMounts": MOUNT,
    "initContainers": WAIT,
    "dnsConfig": {"nameservers": ["192.0.2.1"]},
    "revisionHistoryLimit": 3,
    "serviceMonitor.interval": "99s",
    "cpu": "77m",
    "memory": "177Mi",  # a request is at most its limit
    "maxUnavailable": 7,
    "tolerations": [{"key": "probe", "operator": "Exists"}],
    "automountServiceAccountToken": False,
    "seccompProfile.type": "Unconfined",
    "runAsUser": 77,
    "runAsGroup": 77,
    "fsGroup": 77,
    **dict.fromkeys(
        ("Labels", "labels", "Annotations", "annotations", "nodeSelector", "extraVolumeTags"), NOTE
    ),
    **dict.fromkeys(("name", "keyId", "accessKey", "http_proxy", "no_proxy"), "probe"),
}
# What has to be set besides, so that the key has anything to say.
BESIDES: Json = {
    "awsAccessSecret": {"awsAccessSecret": {"name": "keys"}},
    "controller.enablePrometheusAnnotations": {"controller": {"enableMetrics": True}},
    "controller.serviceMonitor": {"controller": {"enableMetrics": True}},
    "node.enablePrometheusAnnotations": {"node": {"enableMetrics": True}},
    "node.serviceMonitor": {"node": {"enableMetrics": True}},
    "node.tolerations": {"node": {"tolerateAllTaints": False}},
}


@cache
def table() -> dict[str, str]:
    """What the page says of each pattern of keys."""
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def said_of(key: str) -> str:
    [word] = [word for pattern, word in table().items() if fnmatchcase(key, pattern)]
    return word


def keys_that_are(word: str) -> list[str]:
    return [key for key in KEYS if said_of(key) == word]


def nested(key: str, value: Any) -> Json:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


@cache
def defaults() -> Json:
    values: Json = yaml.safe_load((CHART_FOLDER / "values.yaml").read_text())
    return values


def default_of(key: str) -> Any:
    value: Any = defaults()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def probe(key: str) -> Any:
    """A value that is not the default."""
    if key in PROBES:
        return PROBES[key]
    was = default_of(key)
    if isinstance(was, bool):
        return not was
    [fits, *_] = [value for ending, value in ENDINGS.items() if key.endswith(ending)]
    return fits


def besides(key: str) -> str:
    """The key of ``BESIDES``, "" for most."""
    starts = [start for start in BESIDES if key.startswith(start)]
    assert len(starts) < 2
    return "".join(starts)


def kinds_for(key: str) -> tuple[str, ...]:
    if key == "volumeSnapshotClasses":
        return SNAPSHOTS
    return () if key.endswith("forceEnable") else MONITORS
