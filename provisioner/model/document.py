"""Objects that are written again as they were: their whole ``spec``, and who owns them."""

from typing import Any

import msgspec

from provisioner.model.meta import KubeObject, ObjectMeta


class FullMeta(ObjectMeta, frozen=True, rename="camel", gc=False, kw_only=True):
    """``metadata`` with owners."""

    owner_references: list[dict[str, Any]] | None = None


class Document(KubeObject, frozen=True, rename="camel", kw_only=True):
    """Any object with a ``spec`` and a ``status``, which are kept as they are."""

    metadata: FullMeta = FullMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] | None = None
