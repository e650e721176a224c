"""What the account is asked about a key that EC2 could not use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from provisioner.inspect.command_line import Readers
from provisioner.inspect.explain.gathering.gatherer import Gatherer
from provisioner.inspect.object_name_rules import ObjectName
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.kind_rules import Event
from provisioner.inspect.reading.kinds import EVENTS
from provisioner.kube.resources import CLAIMS, STORAGE_CLASSES, Resource
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.storage_class import StorageClass
from tests.builders import DRIVER, a_class
from tests.inspect.explain.views import NOW, claim_of

KEY = "arn:aws:kms:us-east-1:123456789012:key/k"
REFUSED = Event(
    metadata=ObjectMeta(name="data.1", namespace="shop", uid="e-1", creation_timestamp=NOW),
    type="Warning",
    reason="ProvisioningFailed",
    message="EncryptionKeyUnusable: CreateVolume: EC2 answered KMSKeyAccessDenied: no",
)


class Api:
    """An API server with a claim whose volume was refused, and its class."""

    def __init__(self, storage_class: StorageClass) -> None:
        self.found = {CLAIMS: claim_of(), STORAGE_CLASSES: storage_class}

    async def version(self) -> tuple[str, str]:
        return "v1.37.2", ""

    async def get(self, resource: Resource[Any], name: str, _namespace: str = "") -> Any:
        if resource in self.found:
            return self.found[resource]
        raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")

    async def list(self, resource: Resource[Any], **_: str) -> Any:
        return SimpleNamespace(items=[REFUSED] if resource is EVENTS else [])


class Account:
    """AWS, asked about keys."""

    calls, gaps, region = None, (), "us-east-1"

    def __init__(self, *, encrypts: bool | None) -> None:
        self._encrypts = encrypts
        self.asked: list[str] = []

    async def encrypts_by_default(self) -> bool | None:
        self.asked.append("whether")
        return self._encrypts

    async def default_key(self) -> str:
        self.asked.append("key")
        return KEY


@pytest.mark.parametrize(
    ("parameters", "encrypts", "asked", "named"),
    [
        ({"encrypted": "true"}, False, ["key"], KEY),
        ({}, True, ["whether", "key"], KEY),
        ({}, False, ["whether"], ""),
        ({"encrypted": "false"}, None, ["whether", "key"], KEY),
        ({"encrypted": "true", "kmsKeyId": KEY}, True, [], ""),
    ],
)
async def test_the_default_key_is_asked_for_unless_the_volume_would_have_none(
    parameters: dict[str, str], *, encrypts: bool | None, asked: list[str], named: str
):
    account = Account(encrypts=encrypts)
    cluster = Cluster(cast("Any", Api(a_class(parameters=parameters))))
    readers = Readers(cluster, cast("Any", account))
    found = await Gatherer(readers, DRIVER, "kube-system").view(ObjectName("pvc", "shop", "data"))
    assert account.asked == asked
    assert found.claims[0].default_key == named
