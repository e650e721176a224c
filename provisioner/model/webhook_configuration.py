"""Webhook configurations: whom the API server asks about which objects.

Source: Kubernetes 1.36 API reference, admissionregistration.k8s.io/v1.
"""

from typing import Any

from provisioner.model.meta import KubeObject


class WebhookConfiguration(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A configuration of either kind; its webhooks as they are."""

    webhooks: list[dict[str, Any]] | None = None
