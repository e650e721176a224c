"""ResourceQuotas: how much the objects of a namespace may take.

Source: Kubernetes 1.36 API reference, core/v1 ResourceQuota.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from provisioner.model.meta import KubeObject


class ResourceQuotaSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec``: with scopes it is about some objects only."""

    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class ResourceQuotaStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status``: quantities by resource."""

    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class ResourceQuota(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A ResourceQuota."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus | None = None

    @property
    def hard(self) -> Mapping[str, str]:
        """What all claims may take; nothing if it is about some only, by their scope."""
        is_for_some = bool(self.spec.scopes or self.spec.scope_selector)
        return {} if self.status is None or is_for_some else self.status.hard or {}

    @property
    def used(self) -> Mapping[str, str]:
        """What is taken."""
        return (self.status.used if self.status is not None else None) or {}
