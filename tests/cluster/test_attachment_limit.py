"""Instance types that no table knows: EC2 is asked, and what it says stands on the Node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from provisioner.model.names import ATTACHMENT_LIMIT
from provisioner.model.node import TYPE_LABEL
from tests.cluster import bare_nodes
from tests.cluster.background import Background
from tests.cluster.bare_nodes import Nodes
from tests.cluster.cluster import Json, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEW, METAL = "z9new.large", "z9new.metal-24xl"
OF_EC2 = "aws:///us-east-1a/i-0123456789abcdef0"
NO_RIGHT: Json = {"code": "UnauthorizedOperation", "message": "not you", "http_status": 403}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(background: Background) -> AsyncIterator[Nodes]:
    async with opened(background) as cluster, bare_nodes.some(cluster) as made:
        types = {NEW: "m7i.large", METAL: "i7ie.metal-24xl"}
        await cluster.control(instance_types=types)
        yield made
        await cluster.control(instance_types={}, faults=None)


async def noted(nodes: Nodes, name: str) -> str:
    async def note() -> str:
        annotations: Json = (await nodes.now(name))["metadata"].get("annotations", {})
        return str(annotations.get(ATTACHMENT_LIMIT, ""))

    return await nodes.cluster.until(f"{name} has the annotation", note)


async def test_new_types_are_noted_by_one_call_and_known_ones_are_not(nodes: Nodes):
    await nodes.cluster.control(reset_counts=True)
    known = await nodes.born(labels={TYPE_LABEL: "m5.large"}, provider_id=OF_EC2, taints=[])
    elsewhere = await nodes.born(labels={TYPE_LABEL: NEW}, provider_id="gce://p/z/n", taints=[])
    named = await asyncio.gather(
        *(
            nodes.born(labels={TYPE_LABEL: kind}, provider_id=OF_EC2, taints=[])
            for kind in (NEW, METAL, NEW, f"ml.{NEW}")
        )
    )
    registered = await nodes.born(labels={TYPE_LABEL: NEW}, taints=[])
    await nodes.register(registered["metadata"]["name"], registered, {"count": 27})

    names = [each["metadata"]["name"] for each in (*named, registered)]
    found = await asyncio.gather(*(noted(nodes, name) for name in names))

    kinds = (NEW, METAL, NEW, NEW, NEW)
    limits = (f"{'39' if kind == METAL else '32'} dedicated" for kind in kinds)
    assert found == [f"{kind} {limit}" for kind, limit in zip(kinds, limits, strict=True)]
    for other in (known, elsewhere):
        assert await nodes.patches(other["metadata"]["name"]) == 0
    report = await nodes.cluster.control()
    assert report["calls"]["DescribeInstanceTypes"] == 1


async def test_without_the_right_it_is_said_once_and_all_else_goes_on(nodes: Nodes):
    cluster = nodes.cluster
    await cluster.stop(grace_s=10)
    await cluster.fault("DescribeInstanceTypes", n=1000, **NO_RIGHT)
    await cluster.control(reset_counts=True)
    cluster.forget_log()
    await cluster.start()
    made = [
        await nodes.born(labels={TYPE_LABEL: NEW}, provider_id=OF_EC2, taints=[]) for _ in range(3)
    ]
    waiting = await nodes.born(taints=[bare_nodes.AGENT])
    await nodes.register(waiting["metadata"]["name"], waiting, {"count": 27})

    async def said() -> list[Json]:
        return cluster.said("attachment limits of instance types")

    await cluster.until("the refusal is logged", said)
    await nodes.without_taint(waiting["metadata"]["name"], bare_nodes.AGENT["key"])
    late = await nodes.born(labels={TYPE_LABEL: NEW}, provider_id=OF_EC2, taints=[])

    [line] = await said()
    assert "DescribeInstanceTypes" in line["error"]
    for each in (*made, late):
        assert await nodes.patches(each["metadata"]["name"]) == 0
    assert (await cluster.control())["calls"]["DescribeInstanceTypes"] <= 2

    await cluster.control(faults=None)
    await cluster.stop(grace_s=10)
    await cluster.start()
    for each in (*made, late):
        assert await noted(nodes, each["metadata"]["name"]) == f"{NEW} 32 dedicated"
