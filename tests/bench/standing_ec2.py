"""An account that has a hundred thousand volumes beside those of the strict EC2 behind it.

The standing volumes are made page by page as they are asked for. They are in answers to
DescribeVolumes by the cluster's tag alone, as an inventory asks, and by ids; all else goes to the
strict EC2, which knows the instances and volumes that are worked on.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

import aiohttp
from aiohttp import web

from provisioner.model.names import CLUSTER_PREFIX
from provisioner.model.volume import Volume
from provisioner.sandbox.strict_ec2 import render
from tests.bench import standing
from tests.bench.standing import Standing

_TOKEN: Final = "standing-"
_SET: Final = b"<volumeSet>"
_CREATED: Final = "2026-11-20T00:00:00.000Z"
_HOP_BY_HOP: Final = {"host", "content-length", "connection"}


class StandingEc2:
    """A proxy in front of a strict EC2.

    Attributes:
        pages: of standing volumes that were asked for.
        inventories: that were read to the end.
    """

    def __init__(self, there: Standing, cluster_id: str, behind: str) -> None:
        self._there, self._cluster_id, self._behind = there, cluster_id, behind
        self.pages = self.inventories = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve at a free port; gives the endpoint."""
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            runner = web.ServerRunner(web.Server(self._answer, access_log=None))
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                yield f"http://127.0.0.1:{runner.addresses[0][1]}"
            finally:
                await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        asked = dict(parse_qsl(body.decode(), keep_blank_values=True))
        token = asked.get("NextToken", f"{_TOKEN}0")
        if is_inventory(asked) and token.startswith(_TOKEN):  # else a page of the one behind it
            at = int(token.removeprefix(_TOKEN))
            asked.pop("NextToken", None)
            if at < self._there.volumes:
                return self._page(at, int(asked.get("MaxResults", 500)))
            self.inventories += 1
            body = urlencode(asked).encode()
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        url = self._behind + request.path_qs
        async with self._session.request(request.method, url, data=body, headers=headers) as reply:
            kind = {"Content-Type": reply.headers.get("Content-Type", "text/xml")}
            shown = (await reply.read()).replace(_SET, _SET + self._named(asked), 1)
            return web.Response(status=reply.status, body=shown, headers=kind)

    def _named(self, asked: dict[str, str]) -> bytes:
        """The standing ones among the volumes of a question by ids, on its first page."""
        numbers = (standing.number_of(each) for each in ids_asked(asked))
        there = (n for n in numbers if n is not None and n < self._there.volumes)
        return items(self._there.volume(n, self._cluster_id) for n in there).encode()

    def _page(self, at: int, most: int) -> web.Response:
        self.pages += 1
        until = min(at + most, self._there.volumes)
        some = (self._there.volume(n, self._cluster_id) for n in range(at, until))
        text = page(some, f"{_TOKEN}{until}")
        return web.Response(body=text.encode(), headers={"Content-Type": "text/xml"})


def is_inventory(asked: dict[str, str]) -> bool:
    """Whether these are the parameters of a question for all volumes of a cluster."""
    names = {value for key, value in asked.items() if key.endswith(".Name")}
    by_tag = all(name.startswith("tag:") for name in names)
    of_cluster = any(name.startswith(f"tag:{CLUSTER_PREFIX}") for name in names)
    return asked.get("Action") == "DescribeVolumes" and by_tag and of_cluster


def ids_asked(asked: dict[str, str]) -> list[str]:
    """The ids by which volumes are asked for and nothing else; none on a further page."""
    names = {value for key, value in asked.items() if key.endswith(".Name")}
    if asked.get("Action") != "DescribeVolumes" or names != {"volume-id"} or "NextToken" in asked:
        return []
    return [value for key, value in asked.items() if key.startswith("Filter.1.Value.")]


def page(volumes: Iterable[Volume], token: str) -> str:
    """An answer to DescribeVolumes."""
    content = f"<volumeSet>{items(volumes)}</volumeSet><nextToken>{token}</nextToken>"
    return render.reply("DescribeVolumes", content)


def items(volumes: Iterable[Volume]) -> str:
    """What is in ``volumeSet``."""
    return "".join(f"<item>{_volume(each)}</item>" for each in volumes)


def _volume(each: Volume) -> str:
    written = "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
        for key, value in each.tags.items()
    )
    held = "".join(
        f"<item><volumeId>{each.volume_id}</volumeId><instanceId>{a.instance_id}</instanceId>"
        f"<device>{a.device}</device><status>{a.state}</status>"
        f"<attachTime>{_CREATED}</attachTime></item>"
        for a in each.attachments
    )
    return (
        f"<volumeId>{each.volume_id}</volumeId><size>{each.size_gib}</size><snapshotId/>"
        f"<availabilityZone>{each.zone}</availabilityZone><status>{each.state}</status>"
        f"<createTime>{_CREATED}</createTime><attachmentSet>{held}</attachmentSet>"
        f"<tagSet>{written}</tagSet><volumeType>gp3</volumeType><iops>3000</iops>"
        "<throughput>125</throughput><encrypted>false</encrypted>"
        "<multiAttachEnabled>false</multiAttachEnabled>"
    )
