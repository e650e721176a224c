"""What this instance is and has, from its metadata service or else from its Node object.

The service is used in version 2: text by path, with a token that expires. Source: EC2 user guide
"Use the Instance Metadata Service to access instance metadata".
"""

import asyncio
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import aiohttp
import structlog

from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.node.instance import documents
from provisioner.node.instance.documents import InstanceIdentity
from provisioner.node.instance.http_client import HttpClient
from provisioner.node.instance.kube import NodeKube
from provisioner.node.runtime.sysfs import SystemDirs

ENDPOINT = "http://169.254.169.254"
_TOKEN_TTL_S = 21600
_RENEW_BEFORE_S = 60.0
# The machine itself answers, within milliseconds, so a lost packet need not be waited for long.
_TIMEOUT = aiohttp.ClientTimeout(total=1.0)
PAUSES_S = (0.1, 0.5, 1.0)
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)
_HOP_LIMIT = (
    "check whether the instance's hop limit (HttpPutResponseHopLimit) is 1, which is too low for a "
    "pod without hostNetwork, and whether a network policy blocks it"
)
WAIT_S = 60.0
_POLL_S = 2.0
# If pods cannot reach the service, each attempt takes seconds, so they are rare.
_ASK_AGAIN_S = 60.0
_MACS = "meta-data/network/interfaces/macs/"
_MAPPING = "meta-data/block-device-mapping/"
# PCI vendor and devices of Amazon's network adapters (ENA).
# Source: Linux drivers/net/ethernet/amazon/ena/ena_pci_id_tbl.h.
_ENA = {("0x1d0f", device) for device in ("0x0ec2", "0x1ec2", "0xec20", "0xec21")}

# Nitro instances have their id there; others have something else.
# Source: EC2 user guide "Detect whether a host is an EC2 instance".
_BOARD = Path("class/dmi/id/board_asset_tag")
_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")

T = TypeVar("T")

log = structlog.get_logger(__name__)


class _TryAgainError(Exception):
    """A failure that may be transient."""


class Imds(HttpClient):
    """A client with short timeouts and a few retries.

    Args:
        endpoint: URL without a path.
        pauses_s: the pauses before each retry, in seconds.
    """

    def __init__(self, endpoint: str = ENDPOINT, *, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._pauses_s = pauses_s
        self._token = ""
        self._token_until_s = 0.0

    async def get(self, path: str) -> str | None:
        """The text at a path below /latest; None if there is none (404).

        Raises:
            NodeError: METADATA_UNAVAILABLE, with what to check.
        """
        for pause_s in (*self._pauses_s, None):
            try:
                return await self._get(path)
            except (_TryAgainError, *_FAILURES) as exc:
                if pause_s is None:
                    raise self._unavailable(path, exc) from exc
            await asyncio.sleep(pause_s)
        raise AssertionError  # the last pause is None

    async def _get(self, path: str) -> str | None:
        headers = {"X-aws-ec2-metadata-token": await self._current_token()}
        url = f"{self._endpoint}/latest/{path}"
        async with self._connected().get(url, headers=headers) as response:
            if response.status == HTTPStatus.NOT_FOUND:
                return None
            if response.status == HTTPStatus.UNAUTHORIZED:
                self._token = ""  # the instance was stopped and started, or the clock jumped
                raise _TryAgainError("its token is no longer accepted")
            self._check(response.status)
            return await response.text()

    async def _current_token(self) -> str:
        now_s = time.monotonic()
        if not self._token or now_s >= self._token_until_s:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
            url = f"{self._endpoint}/latest/api/token"
            async with self._connected().put(url, headers=headers) as response:
                self._check(response.status)
                self._token = (await response.text()).strip()
            self._token_until_s = now_s + _TOKEN_TTL_S - _RENEW_BEFORE_S
        return self._token

    def _check(self, status: int) -> None:
        if status == HTTPStatus.FORBIDDEN:
            message = (
                f"the instance metadata service at {self._endpoint} answers HTTP 403: it is "
                "disabled for this instance (HttpEndpoint), or was called through a proxy"
            )
            raise NodeError(Reason.METADATA_UNAVAILABLE, message)
        if status != HTTPStatus.OK:
            raise _TryAgainError(f"HTTP {status}")

    def _unavailable(self, path: str, exc: Exception) -> NodeError:
        where = f"the instance metadata service at {self._endpoint}"
        if isinstance(exc, _TryAgainError):
            message = f"{where} does not return {path}: {exc}"
        else:
            why = "no answer in time" if isinstance(exc, TimeoutError) else f"{exc}"
            message = f"{where} does not answer ({why}): {_HOP_LIMIT}"
        return NodeError(Reason.METADATA_UNAVAILABLE, message)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=_TIMEOUT, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


class Metadata:
    """Facts about this instance; transient failures never change an answer.

    A Node object may belong to a machine that had this name before. So the instance id that the
    Node names is compared with the machine's board, if that has an id; otherwise ``keep`` polls the
    metadata service.

    Args:
        imds: the metadata service; None if it must not be used.
        kube: for the Node object.
        dirs: where sysfs is.
        wait_s: how long to wait for the labels of the Node object, in seconds.
        poll_s: how often to read it meanwhile, in seconds.
        ask_again_s: how long to pause after the service did not answer, in seconds.
        on_other: called when the service contradicts what the Node object has said before; callers
            that used that have to read it again.
    """

    def __init__(
        self,
        imds: Imds | None,
        kube: NodeKube,
        dirs: SystemDirs,
        *,
        wait_s: float = WAIT_S,
        poll_s: float = _POLL_S,
        ask_again_s: float = _ASK_AGAIN_S,
        on_other: Callable[[], object] = lambda: None,
    ) -> None:
        self._imds = imds
        self._kube = kube
        self._dirs = dirs
        self._wait_s = wait_s
        self._poll_s = poll_s
        self._ask_again_s = ask_again_s
        self._on_other = on_other
        self._identity: InstanceIdentity | None = None
        self._is_of_imds = False
        self._is_on_board = False
        self._asking = asyncio.Lock()
        self._ask_at_s = 0.0 if imds is not None else float("inf")
        self._silence_logged = False
        self._interfaces: int | None = None
        self._mapped: frozenset[str] | None = None

    async def identity(self) -> InstanceIdentity:
        """Which instance this is; the metadata service's answer is kept while this process runs.

        Raises:
            NodeError: METADATA_UNAVAILABLE, it is unknown, or the Node object belongs to another
                instance; the message says what helps.
        """
        async with self._asking:
            return await self._asked()

    async def instance_id(self) -> str:
        """The instance's id, without a new request if it is known.

        Raises:
            NodeError: as ``identity``.
        """
        known = self._identity or await self.identity()
        return known.instance_id

    async def keep(self) -> None:
        """Poll the service as long as only the Node says which instance this is.

        Kubelet may never ask again: before Kubernetes 1.35 it does so only when the plugin
        registers (1.34: without the feature gate MutableCSINodeAllocatableCount). Ends once the
        service has answered, if the board has the id, or if the service must not be used.
        """
        while self._imds is not None:
            await asyncio.sleep(max(self._ask_at_s - time.monotonic(), self._poll_s))
            if self._is_of_imds or self._is_on_board:
                return
            if self._identity is not None and self._may_ask():
                await self.identity()

    async def _asked(self) -> InstanceIdentity:
        before = self._identity
        if self._is_of_imds and before is not None:
            return before
        named = await self._of_imds() if before is None or self._may_ask() else None
        self._is_of_imds = named is not None
        found = self._identity = named or before or await self._of_node()
        if found != before:
            log.info("identified this instance", **_shown(found))
        if before is not None and _place(found) != _place(before):
            log.error("the Node object named another instance than this one", **_shown(before))
            self._on_other()
        return found

    async def interfaces(self) -> int:
        """How many network interfaces are attached now, including the primary one.

        While the metadata service does not answer, this is its last answer; if it never answered,
        the network adapters on the PCI bus are counted.
        """
        if found := await self._ask_imds(_MACS, _lines):
            self._interfaces = len(found)
        if self._interfaces is not None:
            return self._interfaces
        return max(await asyncio.to_thread(_adapters, self._dirs.sys), 1)

    async def mapped_devices(self) -> frozenset[str]:
        """The device names of the EBS volumes, except the root, that the instance started with.

        For Xen instances, whose devices do not report their volume. EC2 does not update the mapping
        while an instance runs, so it is read once. Empty if it is unknown.
        """
        if self._mapped is None:
            names = await self._ask_imds(_MAPPING, _lines)
            ebs = [name for name in names or () if name.startswith("ebs")]
            devices = [await self._ask_imds(_MAPPING + name, str.strip) for name in ebs]
            if names is not None and None not in devices:
                self._mapped = frozenset(device for device in devices if device)
        return self._mapped or frozenset()

    async def _of_imds(self) -> InstanceIdentity | None:
        if self._imds is None:
            return None
        try:
            document = await self._imds.get("dynamic/instance-identity/document")
            outpost_arn = await self._imds.get("meta-data/outpost-arn") or ""
            return documents.of_document((document or "").encode(), outpost_arn.strip())
        except (NodeError, ValueError) as exc:
            if not self._silence_logged:
                log.warning(
                    "the metadata service does not answer; using the Node object", error=str(exc)
                )
            self._pause_imds()
            self._silence_logged = True
            return None

    async def _of_node(self) -> InstanceIdentity:
        until_s = time.monotonic() + self._wait_s
        said = ""
        while True:
            try:
                found = documents.of_node(await self._kube.node())
                return await self._checked_against_board(found)
            except (KubeError, ValueError) as exc:
                why = str(exc)
            if why != said:
                log.warning("waiting for the Node object to name its instance", why=why)
                said = why
            if time.monotonic() + self._poll_s >= until_s:
                raise NodeError(Reason.METADATA_UNAVAILABLE, _unknown_instance(why))
            await asyncio.sleep(self._poll_s)

    async def _checked_against_board(self, named: InstanceIdentity) -> InstanceIdentity:
        board = await asyncio.to_thread(on_board, self._dirs.sys)
        if board in {"", named.instance_id}:
            self._is_on_board = bool(board)
            return named
        raise NodeError(
            Reason.METADATA_UNAVAILABLE,
            f"spec.providerID of Node {self._kube.node_name} names {named.instance_id}, but this "
            f"machine is {board} ({self._dirs.sys / _BOARD}): the Node belongs to a machine that "
            "had this name before; delete the Node and restart kubelet, or give the node plugin "
            "access to the instance metadata service",
        )

    async def _ask_imds(self, path: str, read: Callable[[str], T]) -> T | None:
        """The service's answer; None if it does not answer, or did not a moment ago."""
        if self._imds is None or not self._may_ask():
            return None
        try:
            text = await self._imds.get(path)
        except NodeError as exc:
            self._pause_imds()
            if not self._silence_logged:
                log.warning(
                    "the metadata service does not answer; counting interfaces and volumes without",
                    interfaces="unknown" if self._interfaces is None else self._interfaces,
                    error=exc.message,
                )
                self._silence_logged = True
            return None
        if self._silence_logged:
            log.info("the metadata service answers again")
            self._silence_logged = False
        return read(text or "")

    def _may_ask(self) -> bool:
        return time.monotonic() >= self._ask_at_s

    def _pause_imds(self) -> None:
        self._ask_at_s = time.monotonic() + self._ask_again_s


def _unknown_instance(why: str) -> str:
    return (
        f"it is unknown which EC2 instance this node is: {why}; run a cloud controller manager or "
        "our controller with --initialize-nodes, which set this on Nodes, or give the node plugin "
        "access to the instance metadata service"
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip("/") for line in text.split() if line]


def _place(identity: InstanceIdentity) -> tuple[str, str, str]:
    """What kubelet records of it, and changes only when the plugin registers."""
    return identity.instance_id, identity.zone, identity.outpost_arn


def on_board(sys: Path) -> str:
    """The instance id on the machine's board; "" if it has none."""
    try:
        tag = (sys / _BOARD).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return tag if _INSTANCE_ID.fullmatch(tag) else ""


def _shown(identity: InstanceIdentity) -> dict[str, str]:
    return {
        "instance": identity.instance_id,
        "type": identity.instance_type,
        "zone": identity.zone,
        "outpost": identity.outpost_arn,
    }


def _adapters(sys: Path) -> int:
    """Amazon's network adapters on the PCI bus, which every network namespace sees."""

    def id_of(device: Path, name: str) -> str:
        try:
            return (device / name).read_text().strip()
        except OSError:  # removed meanwhile
            return ""

    devices = sys / "bus" / "pci" / "devices"
    if not devices.is_dir():
        return 0
    return sum((id_of(each, "vendor"), id_of(each, "device")) in _ENA for each in devices.iterdir())
