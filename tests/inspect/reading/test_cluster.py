"""Whose clock counts, and what a failed question says of a kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.kinds import WATCHED_SNAPSHOTS
from provisioner.inspect.reading.setup_kinds import SEEN_LEASES
from provisioner.kube import failures
from provisioner.kube.failures import Attempt
from provisioner.kube.resources import NODES
from provisioner.model.errors import KubeError, Reason


class Api:
    """Answers with this Date, or fails; may read no object."""

    def __init__(self, date: str | KubeError = "") -> None:
        self._date = date

    async def version(self) -> tuple[str, str]:
        if isinstance(self._date, KubeError):
            raise self._date
        return "v1.37.2", self._date

    async def get(self, *_: Any) -> Any:
        raise KubeError(Reason.FORBIDDEN, "leases is forbidden", status=403)


def cluster(date: str | KubeError = "") -> Cluster:
    return Cluster(cast("Any", Api(date)))


async def test_it_is_as_late_as_the_api_server_says():
    servers = await cluster("Tue, 07 Jul 2020 11:22:33 GMT").now()

    assert servers == datetime(2020, 7, 7, 11, 22, 33, tzinfo=UTC)
    assert servers.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "date", ["", "yesterday", "Tue, 32 Jul 2020 11:22:33 GMT", KubeError(Reason.TIMED_OUT, "late")]
)
async def test_without_its_date_it_is_as_late_as_here(date: str | KubeError):
    before = datetime.now(UTC)
    assert before <= await cluster(date).now() <= datetime.now(UTC)


async def test_a_question_that_failed_is_known_by_its_kind_and_verb():
    asked = cluster()
    assert await asked.one(SEEN_LEASES, "a", "kube-system") is None

    assert asked.misses(SEEN_LEASES)
    assert asked.misses(SEEN_LEASES, "get")
    assert not asked.misses(SEEN_LEASES, "list")
    assert not asked.misses(NODES)


class Unserved:
    """Answers as an API server does, or a proxy before it, that has no such path."""

    def __init__(self, served: frozenset[tuple[str, str]] | KubeError) -> None:
        self.served_kinds = served
        self.asked = 0

    async def served(self) -> frozenset[tuple[str, str]]:
        self.asked += 1
        if isinstance(self.served_kinds, KubeError):
            raise self.served_kinds
        return self.served_kinds

    async def list(self, *_: Any, **__: Any) -> Any:
        said = b"404 page not found\n"
        raise failures.of_answer(Attempt("list", "volumesnapshots"), 404, said)

    get = list  # noqa: A003


async def test_a_kind_that_is_not_served_has_no_objects_and_none_that_could_not_be_read():
    api = Unserved(frozenset({("v1", "nodes")}))
    asked = Cluster(cast("Any", api))

    assert await asked.every(WATCHED_SNAPSHOTS) == ()
    assert await asked.one(WATCHED_SNAPSHOTS, "s", "shop") is None

    assert asked.gaps == []
    assert not asked.misses(WATCHED_SNAPSHOTS)
    assert api.asked == 1


@pytest.mark.parametrize(
    "served",
    [
        frozenset({(WATCHED_SNAPSHOTS.api_version, WATCHED_SNAPSHOTS.plural)}),
        failures.of_answer(Attempt("get", "/apis"), 404, b"404 page not found\n"),
    ],
    ids=["it is served", "a proxy answers"],
)
async def test_a_404_of_a_kind_that_may_be_served_is_a_gap(served: Any):
    asked = Cluster(cast("Any", Unserved(served)))

    assert await asked.every(WATCHED_SNAPSHOTS) == ()

    assert asked.misses(WATCHED_SNAPSHOTS, "list")
