"""Where the controller's leases are looked for."""

from __future__ import annotations

from typing import Any

from provisioner.inspect.reading.leases import lease_namespace
from provisioner.inspect.reading.setup_kind_rules import SeenLease
from provisioner.model.leadership import lease_names
from tests.inspect.doctor import evidence as e

MAIN, ATTACHER, *_ = lease_names(e.DRIVER)
LONG_AGO_S = 9000.0


class Cluster:
    """Has these leases; may not be asked for them at all, or only not for those of all namespaces."""

    def __init__(self, *leases: SeenLease, gets: bool = True, lists: bool = True) -> None:
        self._leases, self._gets, self._lists = leases, gets, lists
        self.listed = 0

    async def one(self, _: Any, name: str, namespace: str) -> SeenLease | None:
        found = [each for each in self._leases if each.key == f"{namespace}/{name}"]
        return found[0] if found and self._gets else None

    async def every(self, _: Any, *, field_selector: str) -> list[SeenLease]:
        self.listed += 1
        name = field_selector.removeprefix("metadata.name=")
        return [each for each in self._leases if each.name == name and self._lists]

    def misses(self, _: Any) -> bool:
        return not self._gets


def lease(namespace: str, name: str = MAIN, ago_s: float = 3.0) -> SeenLease:
    return e.lease(name, ago_s=ago_s, namespace=namespace)


async def found(cluster: Cluster, given: str = "") -> str:
    return await lease_namespace(cluster, e.DRIVER, given, e.NOW)  # type: ignore[arg-type]


async def test_the_namespace_that_is_given_is_right():
    assert await found(Cluster(lease("storage")), "mine") == "mine"


async def test_the_usual_one_is_not_looked_past_while_anybody_renews_a_lease_there():
    alive = (lease("kube-system", ago_s=LONG_AGO_S), lease("kube-system", ATTACHER, ago_s=50.0))
    cluster = Cluster(*alive, lease("storage"))
    assert (await found(cluster), cluster.listed) == ("kube-system", 0)


async def test_leases_that_a_removed_driver_has_left_hide_no_controller():
    left = [lease("kube-system", name, LONG_AGO_S) for name in (MAIN, ATTACHER)]
    for name in (MAIN, ATTACHER):
        assert await found(Cluster(*left, lease("storage", name))) == "storage"


async def test_of_leases_that_nobody_renews_those_count_that_were_renewed_last():
    for last, before in (("kube-system", "storage"), ("storage", "kube-system")):
        cluster = Cluster(lease(before, ago_s=LONG_AGO_S), lease(last, ago_s=90.0))
        assert await found(cluster) == last


async def test_where_others_cannot_be_listed_the_usual_one_counts():
    cluster = Cluster(lease("kube-system", ago_s=LONG_AGO_S), lease("storage"), lists=False)
    assert (await found(cluster), cluster.listed > 0) == ("kube-system", True)


async def test_elsewhere_the_one_that_was_renewed_last_counts():
    assert await found(Cluster(lease("old", ago_s=LONG_AGO_S), lease("storage"))) == "storage"


async def test_without_any_it_is_the_usual_one():
    for gets in (True, False):
        cluster = Cluster(gets=gets)
        assert await found(cluster) == "kube-system"
        assert (cluster.listed > 0) is gets
