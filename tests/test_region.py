"""The Region of AWS, which each of our programs finds by the same code."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from msgspec.structs import replace

from provisioner import region as region_module
from provisioner.kube.client import KubeClient
from provisioner.kube.wire import Listing
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.node import Node, NodeSpec
from provisioner.region import Start, find_region
from tests.builders import a_node
from tests.ec2.aws_keys import AwsKeys, serving

pytestmark = pytest.mark.usefixtures("aws_environment")


class Kube:
    """Lists nodes, or fails."""

    fails: KubeError | None = None

    def __init__(self, *provider_ids: str) -> None:
        self.nodes = [
            replace(a_node(f"n{i}", zone=None), spec=NodeSpec(provider_id=each))
            for i, each in enumerate(provider_ids)
        ]

    async def list(self, *_: Any) -> Listing[Node]:
        if self.fails is not None:
            raise self.fails
        return Listing(self.nodes, "1")


async def found(*provider_ids: str, given: str | None = None) -> str:
    return await find_region(cast("KubeClient", Kube(*provider_ids)), given)


async def test_a_region_that_is_given_is_taken(monkeypatch: pytest.MonkeyPatch):
    assert await found("aws:///eu-west-1a/i-1", given="us-east-2") == "us-east-2"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert await found("aws:///eu-west-1a/i-1") == "us-west-2"


async def test_the_nodes_tell_the_region():
    assert await found("", "aws:///eu-west-1a/i-1", "aws:///eu-west-1b/i-2") == "eu-west-1"


async def test_nodes_in_several_regions_do_not():
    with pytest.raises(StorageError, match="Nodes are in several"):
        await found("aws:///eu-west-1a/i-1", "aws:///eu-west-2a/i-2")


async def test_where_no_node_tells_it_the_metadata_service_does(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    async with serving(AwsKeys("us-west-2-lax-1a")) as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{url}/")
        assert await found("") == "us-west-2"


async def test_where_nobody_tells_it_one_sentence_says_what_helps():
    with pytest.raises(StorageError, match="give --region or AWS_REGION"):
        await found("")


async def test_nodes_that_may_not_be_listed_are_named_with_what_helps():
    kube = Kube("aws:///eu-west-1a/i-1")
    kube.fails = KubeError(Reason.FORBIDDEN, "cannot list nodes: forbidden")

    with pytest.raises(StorageError, match=r"no AWS region is given.*cannot list nodes: forbidden"):
        await find_region(cast("KubeClient", kube), None)


async def test_a_profile_that_does_not_exist_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_PROFILE", "missing")

    with pytest.raises(StorageError, match=r"profile \(missing\) could not be found"):
        await found("aws:///eu-west-1a/i-1")


async def test_a_program_is_not_ready_and_says_why_until_the_region_is_found(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(region_module, "_AGAIN_S", 0.01)
    start, kube = Start(None), Kube()
    assert "region is not known yet" in start.not_ready()
    finding = asyncio.create_task(start.find_region(cast("KubeClient", kube)))
    while "no Node tells one" not in start.not_ready():  # noqa: ASYNC110 -- as probes look
        await asyncio.sleep(0.005)

    kube.nodes = Kube("aws:///eu-west-1a/i-1").nodes
    await finding

    assert start.region == "eu-west-1"
    assert start.not_ready()
    start.working = lambda: "the caches are not filled yet"
    assert start.not_ready() == "the caches are not filled yet"
