"""The client of the instance metadata service, against a strict one on loopback."""

import asyncio
import re
import time

import aiohttp
import pytest
from aiohttp import web

from provisioner.model.errors import NodeError, Reason
from provisioner.node.instance import metadata as imds_module
from provisioner.node.instance.metadata import Imds
from provisioner.sandbox.real_node.imds import InstanceMetadata, serving

DOCUMENT = "dynamic/instance-identity/document"
ID = "meta-data/instance-id"


class Flaky(InstanceMetadata):
    """Answers as told first; ``asked`` holds methods and paths."""

    def __init__(self):
        super().__init__("i-0a1b", "m5.large", "us-east-1a")
        self.url = ""
        self.first = []
        self.asked = []

    async def answer(self, request):
        self.asked.append((request.method, request.path))
        if self.first:
            return web.Response(status=self.first.pop(0))
        return await super().answer(request)


@pytest.fixture
async def service():
    flaky = Flaky()
    async with serving(flaky) as flaky.url:
        yield flaky


@pytest.fixture
async def imds(service):
    async with Imds(service.url, pauses_s=(0.0, 0.0)) as client:
        yield client


async def test_a_text_is_read_with_a_token_that_is_kept(imds, service):
    assert await imds.get(ID) == "i-0a1b"
    assert await imds.get(ID) == "i-0a1b"

    assert [method for method, _ in service.asked] == ["PUT", "GET", "GET"]


async def test_what_is_not_there_is_none(imds):
    assert await imds.get("meta-data/outpost-arn") is None


async def test_a_token_that_is_forgotten_is_renewed(imds, service):
    await imds.get(ID)
    service.forget_tokens()

    assert await imds.get(ID) == "i-0a1b"


async def test_a_token_is_renewed_before_it_expires(imds, service):
    await imds.get(ID)
    assert 21000 < imds._token_until_s - time.monotonic() < 21600 - 30
    imds._token_until_s = 0.0  # the service would still take the old one

    await imds.get(ID)

    assert [method for method, _ in service.asked] == ["PUT", "GET", "PUT", "GET"]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_flake_is_tried_again(imds, service, status):
    service.first = [status, status]

    assert await imds.get(ID) == "i-0a1b"


async def test_what_stays_broken_is_told(imds, service):
    service.first = [503] * 3

    with pytest.raises(NodeError, match=f"does not return {ID}: HTTP 503") as caught:
        await imds.get(ID)

    assert caught.value.reason is Reason.METADATA_UNAVAILABLE


async def test_a_service_that_is_turned_off_is_told_at_once(imds, service):
    service.is_on = False

    with pytest.raises(NodeError, match="disabled for this instance"):
        await imds.get(ID)

    assert len(service.asked) == 1


class Silent(InstanceMetadata):
    """Its answers never come: a hop limit of 1 drops them."""

    async def answer(self, request):
        await silence.wait()
        return web.Response()


silence = asyncio.Event()


async def test_silence_is_told_with_the_hop_limit(monkeypatch):
    monkeypatch.setattr(imds_module, "_TIMEOUT", aiohttp.ClientTimeout(total=0.05))
    told = r"does not answer \(no answer in time\): check whether .* hop limit"

    async with serving(Silent("i-0", "m5.large", "us-east-1a")) as url:
        async with Imds(url, pauses_s=(0.0,)) as imds:
            with pytest.raises(NodeError, match=told):
                await imds.get(ID)
        silence.set()


async def test_nobody_there_is_told(unused_tcp_port):
    async with Imds(f"http://127.0.0.1:{unused_tcp_port}", pauses_s=()) as imds:
        with pytest.raises(NodeError, match="does not answer") as caught:
            await imds.get(DOCUMENT)

    assert re.search("refused|Connect call failed", caught.value.message)


class TestTheStrictService:
    """The fake itself: what real ones refuse is refused."""

    @pytest.fixture
    async def ask(self, service):
        async with aiohttp.ClientSession() as session:

            async def ask(method, path, **headers):
                headers = {f"X-{name.replace('_', '-')}": value for name, value in headers.items()}
                url = f"{service.url}/latest/{path}"
                async with session.request(method, url, headers=headers) as answer:
                    return answer.status, await answer.text()

            yield ask

    async def test_no_token_no_answer(self, ask):
        assert (await ask("GET", ID))[0] == 401
        assert (await ask("GET", ID, aws_ec2_metadata_token="mine"))[0] == 401

    @pytest.mark.parametrize("ttl", ["0", "21601", "soon", "-1"])
    async def test_a_time_to_live_is_needed(self, ask, ttl):
        assert (await ask("PUT", "api/token"))[0] == 400
        assert (await ask("PUT", "api/token", aws_ec2_metadata_token_ttl_seconds=ttl))[0] == 400

    async def test_a_token_expires(self, ask, service):
        service.clock = 0.0
        _, token = await ask("PUT", "api/token", aws_ec2_metadata_token_ttl_seconds="10")
        assert (await ask("GET", ID, aws_ec2_metadata_token=token))[0] == 200

        service.clock = 10.0
        assert (await ask("GET", ID, aws_ec2_metadata_token=token))[0] == 401

    async def test_proxies_and_other_methods_are_refused(self, ask):
        assert (await ask("GET", ID, Forwarded_For="10.0.0.1"))[0] == 403
        assert (await ask("POST", ID))[0] == 405
