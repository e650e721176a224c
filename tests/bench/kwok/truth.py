"""What EC2 has against what the API server has, when nothing is under way any more."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from provisioner.sandbox.api import Api
from tests.bench.kwok.crowd import ATTACHMENTS, Crowd
from tests.bench.kwok.ec2 import There
from tests.day import cluster
from tests.day.documents import Json
from tests.day.oracle import Oracle, Shown

_PATHS = {
    cluster.CLAIMS: "/api/v1/persistentvolumeclaims",
    cluster.VOLUMES: "/api/v1/persistentvolumes",
    cluster.ATTACHMENTS: ATTACHMENTS,
}
_PAGE = "1000"
T = TypeVar("T")


class _Objects:
    """All of an API server, as it was at one time."""

    def __init__(self, lists: Mapping[str, list[Json]]) -> None:
        self._lists = lists

    def all(self, plural: str, view: type[T]) -> Iterable[T]:
        return (msgspec.convert(each, view) for each in self._lists[plural])


class _Account:
    """All of EC2."""

    def __init__(self, there: There) -> None:
        self.made = there.made
        self._shown = {key: Shown(*each) for key, each in there.volumes.items()}

    def shown(self) -> Mapping[str, Shown]:
        return self._shown


async def wrong(api: Api, there: There, crowd: Crowd) -> list[str]:
    """Sentences about what is lost, doubled, leaked or misplaced."""
    lists = {plural: await _all(api, path) for plural, path in _PATHS.items()}
    return Oracle(_Objects(lists), _Account(there), crowd).wrong(at_rest=True)


async def _all(api: Api, path: str) -> list[Any]:
    found: list[Any] = []
    query = {"limit": _PAGE}
    while True:
        page = await api.get(path, **query)
        found += [{"status": {}, **each} for each in page["items"]]
        if not page["metadata"].get("continue"):
            return found
        query["continue"] = page["metadata"]["continue"]
