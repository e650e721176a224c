"""What the API server is told to ask the webhook about, as data.

The manifests say the same in YAML, for people and their tools; a test compares both. The process
needs it in code for ``--url``, where it registers itself: an installed package has no manifests.
"""

from collections.abc import Callable, Sequence
from typing import Any

from provisioner.model.driver import IN_TREE_DRIVER
from webhook.model.review import Json

MUTATING = "MutatingWebhookConfiguration"
VALIDATING = "ValidatingWebhookConfiguration"

_LABELS = {"app.kubernetes.io/name": "ebs-provisioner", "app.kubernetes.io/component": "webhook"}
# Neither what a cluster starts with nor our own start may wait for us.
_LEFT_ALONE = ["kube-system", "ebs-provisioner"]
_ZONE_GUARD = "ebs-provisioner.io/zone-guard"

_WANTS_A_NEW_VOLUME = (
    'has(object.spec.storageClassName) && object.spec.storageClassName != "" && '
    '(!has(object.spec.volumeName) || object.spec.volumeName == "")'
)
_BY_HAND = [
    {
        "name": "not-made-by-a-provisioner",
        "expression": "!(request.userInfo.username in ["
        ' "system:serviceaccount:ebs-provisioner:ebs-provisioner-controller",'
        ' "system:serviceaccount:kube-system:ebs-csi-controller-sa"])',
    }
]
_RELABEL = [
    {
        "name": "a-label-of-its-place-changes",
        "expression": "!has(object.metadata.deletionTimestamp) && "
        '["topology.kubernetes.io/zone", "topology.kubernetes.io/region",'
        ' "topology.ebs.csi.aws.com/zone", "failure-domain.beta.kubernetes.io/zone",'
        ' "failure-domain.beta.kubernetes.io/region"]'
        " .exists(key, object.metadata.?labels[?key] != oldObject.metadata.?labels[?key])",
    },
    {
        "name": "not-by-the-repairs",
        "expression": "request.userInfo.username !="
        ' "system:serviceaccount:ebs-provisioner:ebs-webhook"',
    },
]
_HAS_VOLUMES = (
    "has(object.spec.volumes) && object.spec.volumes.exists(v, "
    "has(v.persistentVolumeClaim) || has(v.ephemeral) || has(v.awsElasticBlockStore))"
)


def configurations(
    name: str, client_config: Callable[[str], Json], *, driver: str
) -> dict[str, Json]:
    """Both webhook configurations, whole but for their caBundle, by kind."""
    on_ebs = _condition(
        "on-ebs",
        "has(object.spec.awsElasticBlockStore) || "
        f'(has(object.spec.csi) && object.spec.csi.driver == "{driver}")',
    )
    outside = {
        "matchExpressions": [_namespaces("kubernetes.io/metadata.name", "NotIn", _LEFT_ALONE)]
    }
    guarded = _namespaces(_ZONE_GUARD, "In", ["enforce"])
    label = _hook("label.persistentvolumes", _created("persistentvolumes", scope="Cluster"), 5)
    made = {"matchConditions": [*on_ebs["matchConditions"], *_BY_HAND]}
    label |= made | {"reinvocationPolicy": "IfNeeded"}
    check = _hook("persistentvolumes", _created("persistentvolumes", scope="Cluster"), 5) | made
    claims = _hook("persistentvolumeclaims", _created("persistentvolumeclaims"), 2)
    claims |= _condition("wants-a-new-volume", _WANTS_A_NEW_VOLUME) | {"namespaceSelector": outside}
    pods = _hook("pods", _created("pods"), 2) | {"namespaceSelector": outside}
    pods |= _condition("has-volumes-that-may-be-on-ebs", _HAS_VOLUMES)
    bindings = _hook("bindings", _created("pods/binding", "bindings"), 3) | {
        "namespaceSelector": {"matchExpressions": [*outside["matchExpressions"], guarded]}
    }
    reached = {
        MUTATING: [
            each | {"clientConfig": client_config("/mutate/persistentvolumes")}
            for each in (label, _relabelling(on_ebs))
        ],
        VALIDATING: [
            check | {"clientConfig": client_config("/validate/persistentvolumes")},
            claims | {"clientConfig": client_config("/validate/persistentvolumeclaims")},
            pods | {"clientConfig": client_config("/validate/pods")},
            bindings | {"clientConfig": client_config("/validate/bindings")},
            _of_classes(driver) | {"clientConfig": client_config("/validate/storageclasses")},
        ],
    }
    return {kind: _configuration(kind, name, hooks) for kind, hooks in reached.items()}


def _relabelling(on_ebs: Json) -> Json:
    hook = _hook("relabel.persistentvolumes", _created("persistentvolumes", scope="Cluster"), 5)
    hook["rules"][0]["operations"] = ["UPDATE"]
    hook["matchConditions"] = [*on_ebs["matchConditions"], *_RELABEL]
    return hook | {"reinvocationPolicy": "IfNeeded"}


def _of_classes(driver: str) -> Json:
    created = _created("storageclasses", scope="Cluster", group="storage.k8s.io")
    of_ebs = f'object.provisioner in ["{driver}", "{IN_TREE_DRIVER}"]'
    return _hook("storageclasses", created, 2) | _condition("of-ebs", of_ebs)


def by_url(base: str) -> Callable[[str], Json]:
    """``clientConfig`` for a webhook that is no Service, but listens at this URL."""
    return lambda path: {"url": f"{base.rstrip('/')}{path}"}


def _configuration(kind: str, name: str, hooks: list[Json]) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": dict(_LABELS)},
        "webhooks": hooks,
    }


def _hook(name: str, rule: Json, timeout_s: int) -> Json:
    return {
        "name": f"{name}.ebs-provisioner.io",
        "admissionReviewVersions": ["v1"],
        "rules": [rule],
        # EC2 is only read; and an outage of ours never stops a cluster.
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": timeout_s,
    }


def _created(*resources: str, scope: str = "Namespaced", group: str = "") -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": list(resources),
        "operations": ["CREATE"],
        "scope": scope,
    }


def _condition(name: str, expression: str) -> dict[str, Any]:
    return {"matchConditions": [{"name": name, "expression": expression}]}


def _namespaces(key: str, operator: str, values: Sequence[str]) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}
