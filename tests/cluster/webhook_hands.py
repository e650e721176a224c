"""What the stories of the webhook share: where it is registered, and what users are told."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from provisioner.sandbox.api import ApiError
from tests.cluster.replicas import eventually
from tests.cluster.static import ZONE, Store, pinned

CONFIGURATIONS = [
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/ebs-webhook"
    for kind in ("mutating", "validating")
]
SECRET = "/api/v1/namespaces/ebs-provisioner/secrets/ebs-webhook-tls"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ebs-provisioner/leases/ebs-webhook-repairs"
REGION = "topology.kubernetes.io/region"
A, B = "us-east-1a", "us-east-1b"
IN_A = {ZONE: A, REGION: "us-east-1"}

Json = dict[str, Any]


@contextlib.asynccontextmanager
async def refused(status: int, *words: str) -> AsyncIterator[None]:
    """What is done in this block is refused by the webhook, in words that a user understands."""
    with pytest.raises(ApiError) as caught:
        yield
    message = str(caught.value)
    assert "admission webhook" in message
    assert "denied the request" in message
    assert caught.value.status == status, message
    assert [word for word in words if word not in message] == [], message


def is_complete(volume: Json) -> bool:
    labels = volume["metadata"].get("labels") or {}
    return labels == IN_A and volume["spec"].get("nodeAffinity") == pinned(A)


async def complete(store: Store, name: str) -> None:
    async def so() -> bool:
        return is_complete(await store.read(name))

    # The lease of a replica that was killed expires after 15 s.
    await eventually(f"{name} has labels and affinity", so, within_s=60)
