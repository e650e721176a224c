"""A hand in a cluster that reaches one namespace and two classes, all with the label of its run."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from provisioner.conformance.cluster import objects
from provisioner.conformance.cluster.kinds import CLASSES, NAMESPACES, SNAPSHOT_CLASSES
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.resources import Resource
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import KubeObject
from provisioner.model.names import CONFORMANCE_RUN

T = TypeVar("T", bound=KubeObject)
Found = TypeVar("Found")

PAUSE_S = 0.25
_GONE = frozenset({404, 409})
_PASSING = frozenset({0, 409, 429, 500, 503, 504})
_WIDE: tuple[Resource[Any], ...] = (NAMESPACES, CLASSES, SNAPSHOT_CLASSES)


@dataclass(frozen=True, slots=True)
class Hand:
    """Makes and deletes objects of one run, and nothing else.

    Attributes:
        client: of the cluster.
        run: the id.
    """

    client: KubeClient
    run: str

    @property
    def namespace(self) -> str:
        """The run's; its classes have the same name."""
        return objects.name_of(self.run)

    async def make(self, kind: Resource[T], body: Mapping[str, Any]) -> T:
        """Create an object in the namespace, or the namespace, or a class.

        Raises:
            KubeError: it was refused.
        """
        typed = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return await self.client.create(kind, typed, self._inside(kind))

    async def get(self, kind: Resource[T], name: str) -> T | None:
        """An object as it is now, None if there is none."""
        try:
            return await self.client.get(kind, name, self._inside(kind))
        except KubeError as failure:
            if failure.reason is Reason.OBJECT_NOT_FOUND:
                return None
            raise

    async def list(self, kind: Resource[T]) -> list[T]:
        """All objects of a kind in the namespace."""
        return (await self.client.list(kind, namespace=self.namespace)).items

    async def patch(self, kind: Resource[T], name: str, body: Mapping[str, Any]) -> T:
        """Change an object in the namespace."""
        return await self.client.patch(kind, name, body, kind=Patch.MERGE, namespace=self.namespace)

    async def delete(self, kind: Resource[T], name: str) -> None:
        """Delete an object in the namespace, if it is there."""
        with _gone_is_fine():
            await self.client.delete(kind, name, namespace=self.namespace)

    async def delete_wide(self, kind: Resource[T]) -> T | None:
        """Delete the namespace or a class if it has our label; what is still there of it.

        Raises:
            KubeError: it was refused.
        """
        found = await self.get(kind, self.namespace)
        if found is None or found.labels.get(CONFORMANCE_RUN) != self.run:
            return None
        if not found.deleting:
            with _gone_is_fine():
                await self.client.delete(kind, self.namespace, uid=found.uid)
        return found

    async def until(self, look: Callable[[], Awaitable[Found | None]]) -> Found:
        """Look again and again until there is something; the caller sets the deadline."""
        while True:
            with _patient():
                if (found := await look()) is not None:
                    return found
            await asyncio.sleep(PAUSE_S)

    def _inside(self, kind: Resource[Any]) -> str:
        return "" if kind in _WIDE else self.namespace


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    """Pass over what says that an object is not there, or is another one by now."""
    try:
        yield
    except KubeError as failure:
        if failure.status not in _GONE:
            raise


@contextmanager
def _patient() -> Iterator[None]:
    """Pass over what an API server answers that is busy or restarts."""
    try:
        yield
    except KubeError as failure:
        if failure.status not in _PASSING:
            raise
