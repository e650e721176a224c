"""A snapshot in a cluster whose API server does not serve its kind, or serves an old version."""

from __future__ import annotations

from typing import Any, cast

import pytest

from provisioner.inspect.command_line import Readers
from provisioner.inspect.explain import snapshot_rules
from provisioner.inspect.explain.gathering.gatherer import Gatherer
from provisioner.inspect.object_name_rules import ObjectName
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.kinds import WATCHED_SNAPSHOTS
from provisioner.kube.resources import Resource
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason
from tests.builders import DRIVER

GROUP = "snapshot.storage.k8s.io"
SNAPSHOT = ObjectName("snapshot", "shop", "monday")


class Api:
    """An API server that answers as a real one where a kind is not served: with no object's 404."""

    def __init__(self, *versions: str, tells: bool = True) -> None:
        self._versions = versions
        self._tells = tells

    async def version(self) -> tuple[str, str]:
        return "v1.37.2", ""

    async def served(self) -> frozenset[tuple[str, str]]:
        if not self._tells:
            raise KubeError(Reason.FORBIDDEN, "cannot list groups: forbidden")
        return frozenset((f"{GROUP}/{each}", "volumesnapshots") for each in self._versions)

    async def get(self, resource: Resource[Any], name: str, _namespace: str = "") -> Any:
        if resource is WATCHED_SNAPSHOTS:
            raise KubeError(Reason.REJECTED, "HTTP 404: 404 page not found", status=404)
        raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")

    async def list(self, _resource: Resource[Any], **_: str) -> Any:
        raise KubeError(Reason.OBJECT_NOT_FOUND, "none")


def gatherer(api: Api) -> Gatherer:
    readers = Readers(Cluster(cast("Any", api)), Cloud(None, Metrics()))
    return Gatherer(readers, DRIVER, "kube-system")


@pytest.mark.parametrize("versions", [(), ("v1beta1",)])
async def test_a_snapshot_of_a_kind_that_is_not_served_is_explained(versions: tuple[str, ...]):
    found = await gatherer(Api(*versions)).view(SNAPSHOT)

    assert found.snapshot is not None
    [chain] = snapshot_rules.chains(found, found.snapshot)
    assert chain.links[0].cause == "SnapshotCrdsMissing"
    assert "get volumesnapshots" not in found.unread


async def test_a_server_that_does_not_say_what_it_serves_is_asked_for_the_snapshot():
    with pytest.raises(KubeError, match="404 page not found"):
        await gatherer(Api(tells=False)).view(SNAPSHOT)
