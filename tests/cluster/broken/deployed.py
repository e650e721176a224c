"""Deployments of controllers, of which the sandbox's controllers, being processes, have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.cluster.place import Place


async def deployed(
    place: Place,
    product: str = "ebs-provisioner",
    *,
    component: str = "controller",
    replicas: int = 0,
    environment: Mapping[str, str] | None = None,
) -> None:
    """A Deployment in the story's namespace, labelled as a product's manifests label theirs."""
    labels = {"app.kubernetes.io/name": product, "app.kubernetes.io/component": component}
    variables = [{"name": name, "value": value} for name, value in (environment or {}).items()]
    container = {"name": "controller", "image": f"{product}:0.2.0", "env": variables}
    spec: dict[str, Any] = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    body = {"metadata": {"name": product, "labels": labels}, "spec": spec}
    await place.api.create(f"/apis/apps/v1/namespaces/{place.name}/deployments", body)
