"""Nodes are written only as they were read; whoever came first is heeded at once."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.controller.shared.node_patch_rules import Operation, labelled
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.model.node import Node
from tests.controller.node_api import NodeApi

LOST = KubeError(Reason.REPLY_LOST, "lost", outcome=Outcome.UNKNOWN)


def a_document(uid: str = "uid-1", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "node-1", "uid": uid, "labels": labels}, "spec": {}}


def marked(node: Node) -> list[Operation]:
    return labelled(node, {"mark": node.uid})


async def test_a_change_is_written_and_seen_at_once():
    api = NodeApi()
    api.put(a_document())

    changed = await api.writes.change("node-1", marked)

    assert changed is not None
    assert changed.labels == {"mark": "uid-1"}
    assert api.caches.nodes.get("node-1") == changed.as_cached()
    assert await api.writes.change("node-1", marked) is None
    assert len(api.sent) == 1


async def test_a_node_that_is_unknown_or_gone_is_left():
    api = NodeApi()
    assert await api.writes.change("node-1", marked) is None
    assert api.sent == []

    api.put(a_document())
    api.nodes.clear()
    assert await api.writes.change("node-1", marked) is None


async def test_what_somebody_else_wrote_meanwhile_is_decided_on_anew():
    api = NodeApi()
    api.put(a_document())
    api.put(a_document(new="yes"), is_seen=False)

    changed = await api.writes.change("node-1", marked)

    assert changed is not None
    assert changed.labels == {"new": "yes", "mark": "uid-1"}
    assert len(api.sent) == 2


async def test_a_node_made_anew_is_not_taken_for_the_old_one():
    api = NodeApi()
    api.put(a_document())
    api.put(a_document("uid-2"), is_seen=False)

    def only_the_first(node: Node) -> list[Operation]:
        return marked(node) if node.uid == "uid-1" else []

    assert await api.writes.change("node-1", only_the_first) is None
    assert api.node("node-1").labels == {}


async def test_after_a_lost_reply_nothing_is_written_twice():
    api = NodeApi()
    api.put(a_document())
    api.failures = [(LOST, True)]
    with pytest.raises(KubeError, match="lost"):
        await api.writes.change("node-1", marked)

    assert await api.writes.change("node-1", marked) is None
    assert [len(each) for each in api.sent] == [1, 1]  # the cache was behind: refused, read again


async def test_what_the_api_server_refuses_for_good_is_no_conflict():
    api = NodeApi()
    api.put(a_document())
    api.failures = [(KubeError(Reason.REJECTED, "bad label", status=422), False)]

    with pytest.raises(KubeError, match="bad label"):
        await api.writes.change("node-1", marked)

    assert len(api.sent) == 1


async def test_a_node_that_changes_all_the_time_is_given_up_with_a_conflict():
    api = NodeApi()
    api.put(a_document())
    api.before = lambda: api.put(a_document(), is_seen=False)

    with pytest.raises(KubeError) as caught:
        await api.writes.change("node-1", marked)

    assert caught.value.reason is Reason.CONFLICT
