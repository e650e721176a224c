"""What the others do on a simulated day."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from provisioner.model.claim import SELECTED_NODE
from tests.bench.standing import Standing
from tests.day.api_server import ApiServer
from tests.day.clocks import DayLoop
from tests.day.cluster import CLAIMS, Churn, Cluster

PLURALS = (
    *("persistentvolumeclaims", "persistentvolumes", "volumeattachments"),
    *("nodes", "csinodes", "storageclasses"),
)


def test_a_claim_whose_node_was_taken_back_gets_another_one() -> None:
    async def story() -> tuple[str | None, str]:
        account = SimpleNamespace(launch=lambda *_: None, place=lambda *_: None)
        api = ApiServer([("v1", each, each) for each in PLURALS])
        cluster = Cluster(api, cast("Any", account), Standing(0, 30, 0), Churn())
        cluster.load("test")
        cluster._create()
        (life,) = cluster.lives.values()
        api.change(CLAIMS, life.key, {"metadata": {"annotations": {SELECTED_NODE: None}}})
        await asyncio.sleep(5)
        claim = api.find(CLAIMS, life.key)
        assert claim is not None
        return claim["metadata"]["annotations"].get(SELECTED_NODE), life.node

    loop = DayLoop()
    try:
        selected, node = loop.run_until_complete(story())
    finally:
        loop.close()

    assert selected
    assert selected == node
