"""Which kubelets are asked how full volumes are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.inspect.command_line import Readers
from provisioner.inspect.df.usage import usage_by_claim
from provisioner.inspect.reading.gap_rules import KUBERNETES, Gap
from provisioner.kube.resources import ATTACHMENTS, NODES, PERSISTENT_VOLUMES
from provisioner.model.errors import KubeError, Reason


def attached(volume: str | None, node: str) -> Any:
    source = SimpleNamespace(persistent_volume_name=volume)
    return SimpleNamespace(spec=SimpleNamespace(source=source, node_name=node))


class Cluster:
    """Three nodes: one with the volume ``wanted``, one with another, one with an inline volume."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gaps: list[Gap] = []
        self.refusal: KubeError | None = None
        self.client = self
        self._kinds: dict[Any, list[Any]] = {
            NODES: [SimpleNamespace(name=name) for name in ("a", "b", "c")],
            ATTACHMENTS: [attached("wanted", "a"), attached("other", "b"), attached(None, "c")],
        }

    async def every(self, resource: Any) -> list[Any]:
        return self._kinds[resource]

    def misses(self, resource: Any) -> bool:
        return any(each.what.endswith(resource.plural) for each in self.gaps)

    async def text(self, path: str) -> str:
        self.asked.append(path.split("/")[4])
        if self.refusal is not None:
            raise self.refusal
        return '{"pods": []}'


async def asked(cluster: Cluster) -> list[str]:
    assert await usage_by_claim(Readers(cluster, None), {"wanted"}) == {}  # type: ignore[arg-type]
    return sorted(cluster.asked)


async def test_only_nodes_with_a_wanted_volume_are_asked():
    assert await asked(Cluster()) == ["a"]


@pytest.mark.parametrize("kind", [ATTACHMENTS, PERSISTENT_VOLUMES])
async def test_all_nodes_are_asked_if_it_is_unknown_where_volumes_are(kind: Any):
    cluster = Cluster()
    cluster.gaps.append(Gap(KUBERNETES, f"list {kind.plural}", Reason.FORBIDDEN, "no"))

    assert await asked(cluster) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("reason", "what"),
    [
        (Reason.FORBIDDEN, ["get nodes/proxy"]),
        (Reason.TIMED_OUT, [f"get nodes/proxy {node}" for node in ("a", "b", "c")]),
    ],
)
async def test_a_missing_right_is_one_gap_and_a_node_that_is_away_one_each(
    reason: Reason, what: list[str]
):
    cluster = Cluster()
    unknown = Gap(KUBERNETES, "list volumeattachments", Reason.FORBIDDEN, "no")
    cluster.gaps.append(unknown)
    cluster.refusal = KubeError(reason, "it may not", status=403)

    await asked(cluster)

    assert [each.what for each in cluster.gaps] == [unknown.what, *what]
    assert all("it may not" in each.message for each in cluster.gaps[1:])
