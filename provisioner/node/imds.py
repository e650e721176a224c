"""The instance metadata service, version 2: text by path, with a token that expires.

Source: EC2 user guide "Use the Instance Metadata Service to access instance metadata".
"""

import asyncio
import time
from http import HTTPStatus
from typing import Self

import aiohttp

from provisioner.model.errors import NodeError, Reason

ENDPOINT = "http://169.254.169.254"
_TOKEN_TTL_S = 21600
_RENEW_BEFORE_S = 60.0
# It answers within milliseconds, from the machine itself; a lost packet is no reason to wait long.
_TIMEOUT = aiohttp.ClientTimeout(total=1.0)
PAUSES_S = (0.1, 0.5, 1.0)
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)
_HOP_LIMIT = (
    "is the instance's hop limit 1 (HttpPutResponseHopLimit), too low for a pod without "
    "hostNetwork, or does a network policy forbid it?"
)


class _TryAgainError(Exception):
    """A failure that may be over in a moment."""


class Imds:
    """Asks with short timeouts and tries again a few times; then it raises.

    Args:
        endpoint: URL without a path.
        pauses_s: how long to wait before each further try, in seconds.
    """

    def __init__(self, endpoint: str = ENDPOINT, *, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._pauses_s = pauses_s
        self._session: aiohttp.ClientSession | None = None
        self._token = ""
        self._token_until_s = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(self, path: str) -> str | None:
        """The text at a path below /latest; None where there is none (404).

        Raises:
            NodeError: METADATA_UNAVAILABLE, with what to look at.
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
                self._token = ""  # the instance was stopped and started, or a clock jumped
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
                f"the instance metadata service at {self._endpoint} refuses (HTTP 403): it is "
                "turned off for this instance (HttpEndpoint), or asked through a proxy"
            )
            raise NodeError(Reason.METADATA_UNAVAILABLE, message)
        if status != HTTPStatus.OK:
            raise _TryAgainError(f"HTTP {status}")

    def _unavailable(self, path: str, exc: Exception) -> NodeError:
        where = f"the instance metadata service at {self._endpoint}"
        if isinstance(exc, _TryAgainError):
            message = f"{where} gives no {path}: {exc}"
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
