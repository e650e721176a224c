"""An API server that has leases, pods if they are given, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.reading.kinds import WATCHED_PODS
from provisioner.inspect.reading.setup_kind_rules import SeenLease
from provisioner.inspect.reading.setup_kinds import SEEN_LEASES
from provisioner.model.errors import KubeError, Reason
from tests.inspect.doctor import evidence as e


class LeaseApi:
    """Its clock shows ``e.NOW``.

    Args:
        leases: that there are.
        lists: whether those of all namespaces may be listed.
        pods: that are found by their names.

    Attributes:
        most: objects that it was asked for at the same time.
    """

    def __init__(
        self, *leases: SeenLease, lists: bool = True, pods: Sequence[WatchedPod] = ()
    ) -> None:
        self._leases = {each.key: each for each in leases}
        self._lists = lists
        self._named = pods
        self._asked = 0
        self.most = 0

    async def version(self) -> tuple[str, str]:
        return "v1.37.2", format_datetime(e.NOW)

    async def get(self, _: Any, name: str, namespace: str = "") -> SeenLease:
        self._asked += 1
        await asyncio.sleep(0)
        self.most, self._asked = max(self.most, self._asked), self._asked - 1
        if (found := self._leases.get(f"{namespace}/{name}")) is None:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")
        return found

    async def list(self, resource: Any, *, namespace: str = "", field_selector: str = "") -> Any:
        if resource is SEEN_LEASES and not self._lists:
            raise KubeError(Reason.FORBIDDEN, "leases is forbidden", status=403)
        name = field_selector.removeprefix("metadata.name=")
        if resource is WATCHED_PODS:
            return SimpleNamespace(items=[each for each in self._named if each.name == name])
        if resource is not SEEN_LEASES or namespace:
            return SimpleNamespace(items=())
        return SimpleNamespace(items=[each for each in self._leases.values() if each.name == name])

    async def text(self, path: str) -> str:
        raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {path}")
