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
_HAS_VOLUMES = (
    "has(object.spec.volumes) && object.spec.volumes.exists(v, "
    "has(v.persistentVolumeClaim) || has(v.ephemeral) || has(v.awsElasticBlockStore))"
)


def configurations(
    name: str, client_config: Callable[[str], Json], *, driver: str
) -> dict[str, Json]:
    """Both webhook configurations, whole but for their caBundle, by kind.

    Args:
        name: of both objects.
        client_config: how the API server reaches a path of ours, as ``clientConfig`` says it.
        driver: name of the CSI driver whose persistent volumes are reviewed.
    """
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
    label |= on_ebs | {"reinvocationPolicy": "IfNeeded"}
    check = _hook("persistentvolumes", _created("persistentvolumes", scope="Cluster"), 5) | on_ebs
    claims = _hook("persistentvolumeclaims", _created("persistentvolumeclaims"), 2)
    claims |= _condition("wants-a-new-volume", _WANTS_A_NEW_VOLUME) | {"namespaceSelector": outside}
    pods = _hook("pods", _created("pods"), 2) | {"namespaceSelector": outside}
    pods |= _condition("has-volumes-that-may-be-on-ebs", _HAS_VOLUMES)
    bindings = _hook("bindings", _created("pods/binding", "bindings"), 3)
    bindings["namespaceSelector"] = {"matchExpressions": [*outside["matchExpressions"], guarded]}
    reached = {
        MUTATING: [label | {"clientConfig": client_config("/mutate/persistentvolumes")}],
        VALIDATING: [
            check | {"clientConfig": client_config("/validate/persistentvolumes")},
            claims | {"clientConfig": client_config("/validate/persistentvolumeclaims")},
            pods | {"clientConfig": client_config("/validate/pods")},
            bindings | {"clientConfig": client_config("/validate/bindings")},
            _of_classes(driver) | {"clientConfig": client_config("/validate/storageclasses")},
        ],
    }
    return {kind: _configuration(kind, name, hooks) for kind, hooks in reached.items()}


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
