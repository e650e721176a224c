"""Where the controller's leases are looked for."""

from __future__ import annotations

from typing import Any

from provisioner.inspect.reading.leases import lease_namespace
from provisioner.inspect.reading.setup_kind_rules import SeenLease
from provisioner.model.leadership import lease_names
from tests.inspect.doctor import evidence as e

MAIN = lease_names(e.DRIVER)[0]


class Cluster:
    """Leases by namespace, each by name."""

    def __init__(self, leases: dict[str, list[SeenLease]], *, forbidden: bool = False) -> None:
        self._leases, self._forbidden, self.listed = leases, forbidden, 0

    async def one(self, _: Any, name: str, namespace: str) -> SeenLease | None:
        return next((each for each in self._leases.get(namespace, ()) if each.name == name), None)

    async def every(self, _: Any, *, field_selector: str) -> list[SeenLease]:
        self.listed += 1
        name = field_selector.removeprefix("metadata.name=")
        return [
            e.read(
                SeenLease,
                {
                    "metadata": {"name": each.name, "namespace": namespace},
                    "spec": {"renewTime": each.spec.renew_time},
                },
            )
            for namespace, found in self._leases.items()
            for each in found
            if each.name == name
        ]

    def misses(self, _: Any) -> bool:
        return self._forbidden


async def found(cluster: Cluster, given: str = "") -> str:
    return await lease_namespace(cluster, e.DRIVER, given)  # type: ignore[arg-type]


async def test_the_namespace_that_is_given_is_right():
    assert await found(Cluster({"storage": [e.lease(MAIN)]}), "mine") == "mine"


async def test_the_usual_one_is_not_looked_past():
    cluster = Cluster({"kube-system": [e.lease(MAIN)], "storage": [e.lease(MAIN)]})
    assert (await found(cluster), cluster.listed) == ("kube-system", 0)


async def test_elsewhere_the_one_that_was_renewed_last_counts():
    cluster = Cluster({"old": [e.lease(MAIN, ago_s=9000.0)], "storage": [e.lease(MAIN)]})
    assert await found(cluster) == "storage"


async def test_without_any_it_is_the_usual_one():
    for forbidden in (True, False):
        cluster = Cluster({}, forbidden=forbidden)
        assert await found(cluster) == "kube-system"
        assert (cluster.listed == 0) is forbidden
