"""Kubernetes' half of what a command shows: each object is asked for once, a refusal is a gap."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, cast

from provisioner.inspect.reading.gap_rules import GROUPS, KUBERNETES, Gap
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import Resource, T
from provisioner.model.errors import KubeError, Reason


class Cluster:
    """What one command reads of one API server.

    Nothing is asked twice, but by ``again`` and ``one_again``: a second question gets the first
    answer, also while that is awaited. What fails is kept in ``gaps``, and answered as if there
    were nothing. So one may ask for all that one would like to know, with any rights.

    Attributes:
        client: for what is not read as an object: reviews, logs, a node's statistics.
        gaps: what could not be read, in the order in which it was found.
    """

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.gaps: list[Gap] = []
        self._asked: dict[tuple[object, ...], asyncio.Task[Any]] = {}

    async def one(self, resource: Resource[T], name: str, namespace: str = "") -> T | None:
        """One object; None if there is none, or it cannot be read (see ``gaps``)."""
        key = ("get", resource, namespace, name)
        return cast("T | None", await self._once(key, lambda: self._get(resource, name, namespace)))

    async def every(
        self, resource: Resource[T], *, namespace: str = "", field_selector: str = ""
    ) -> Sequence[T]:
        """All objects of a kind, or of a namespace; none if they cannot be read (see ``gaps``)."""
        key = ("list", resource, namespace, field_selector)
        ask = lambda: self._list(resource, namespace, field_selector)  # noqa: E731
        return cast("Sequence[T]", await self._once(key, ask))

    async def again(self, resource: Resource[T]) -> Sequence[T]:
        """All objects of a kind, as they are now: for what may have changed since it was read."""
        self._asked.pop(("list", resource, "", ""), None)
        return await self.every(resource)

    async def one_again(self, resource: Resource[T], name: str) -> T | None:
        """One object without a namespace, as it is now."""
        self._asked.pop(("get", resource, "", name), None)
        return await self.one(resource, name)

    async def versions(self, group: str) -> tuple[str, ...]:
        """In which versions the API server serves a group; none also if it does not say."""
        found = await self._once(("served",), self._served)
        return tuple(
            sorted({each.partition("/")[2] for each, _ in found if each.startswith(f"{group}/")})
        )

    async def serves(self, resource: Resource[Any]) -> bool:
        """Whether the API server has a kind; True also if it does not say."""
        found = await self._once(("served",), self._served)
        return not found or (resource.api_version, resource.plural) in found

    async def now(self) -> datetime:
        """The time by the API server's clock; by this machine's if it does not say."""
        try:
            _, date = await self.client.version()
            return parsedate_to_datetime(date).astimezone(UTC)
        except (KubeError, ValueError, TypeError):
            return datetime.now(UTC)

    def misses(self, resource: Resource[Any], *verbs: str) -> bool:
        """Whether a question about this kind failed: then its absence proves nothing.

        Args:
            resource: the kind.
            verbs: of the question: "get", "list"; without any, both.
        """
        failed = {f"{verb} {resource.plural}" for verb in verbs or ("get", "list")}
        return any(each.what in failed for each in self.gaps)

    async def _once(self, key: tuple[object, ...], ask: Any) -> Any:
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(ask())
        return await asyncio.shield(task)

    async def _served(self) -> frozenset[tuple[str, str]]:
        try:
            return await self.client.served()
        except KubeError as error:
            self._miss(GROUPS, error)
            return frozenset()

    async def _get(self, resource: Resource[T], name: str, namespace: str) -> T | None:
        try:
            return await self.client.get(resource, name, namespace)
        except KubeError as error:
            if not await self._is_without(resource, error):
                self._miss(f"get {resource.plural}", error)
            return None

    async def _list(
        self, resource: Resource[T], namespace: str, field_selector: str
    ) -> Sequence[T]:
        try:
            listing = await self.client.list(
                resource, namespace=namespace, field_selector=field_selector
            )
        except KubeError as error:
            if not await self._is_without(resource, error):
                self._miss(f"list {resource.plural}", error)
            return ()
        return listing.items

    async def _is_without(self, resource: Resource[Any], error: KubeError) -> bool:
        """Whether there is no such object, or no such kind; then none can be missed.

        An API server has no words of its own for a kind that it does not serve, and a proxy may
        answer with the same status: so it is asked which kinds it has.
        """
        if error.reason is Reason.OBJECT_NOT_FOUND:
            return True
        return error.status == HTTPStatus.NOT_FOUND and not await self.serves(resource)

    def _miss(self, what: str, error: KubeError) -> None:
        self.gaps.append(Gap.of(KUBERNETES, what, error))
