"""HTTP to the API server: credentials, timeouts, statuses, a fair limit on what is under way."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp
import structlog
from kubernetes.aio.client.api_client import ApiClient

from provisioner import kube_failures as failures
from provisioner.kube import wire
from provisioner.kube.credentials import Credentials
from provisioner.kube_failures import Attempt
from provisioner.model.errors import KubeError, Reason

USER_AGENT = "ebs-provisioner"  # also the field manager that the API server records
CONCURRENCY = 64
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)
# Where anything changes at all, a bookmark comes about once a minute.
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=70)
_READ_BUFFER = 2**18
_RETRY_UNAUTHORIZED_S = 5.0
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Request:
    attempt: Attempt
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    body: Any = None


class Transport:
    """Exchanges with one API server; every failure leaves as ``KubeError``."""

    def __init__(self, credentials: Credentials, *, concurrency: int = CONCURRENCY) -> None:
        configuration = credentials.configuration
        configuration.connection_pool_maxsize = 0  # _slots is the only limit
        # trust_env would cost two thread hops a request, see credentials.proxy_for.
        configuration.client_session_kwargs = {
            "trust_env": False,
            "cookie_jar": aiohttp.DummyCookieJar(),
            "read_bufsize": _READ_BUFFER,
        }
        self._credentials = credentials
        self._api: Any = ApiClient(configuration)
        self._api.user_agent = USER_AGENT
        self._slots = asyncio.Semaphore(concurrency)
        self._refused = False
        self._certificate = credentials.generation
        self._retired: aiohttp.ClientSession | None = None
        credentials.serve(self._api.rest_client.ssl_context)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()
        if self._retired is not None:
            await self._retired.close()

    async def send(
        self,
        attempt: Attempt,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """One request; the body of its successful answer."""
        # The API server compresses answers above 128 KiB; beside it in one cluster that costs
        # both sides more than it saves.
        headers = {"Accept": accept, "Content-Type": content_type, "Accept-Encoding": "identity"}
        request = _Request(attempt, method, path, query or {}, headers, REQUEST_TIMEOUT, body)
        async with self._slots:
            try:
                response = await self._open(request)
                async with response:
                    data = await response.read()
            except _FAILURES as exc:
                raise failures.of_exception(attempt, exc) from exc
        if not response.ok:
            retry_after = response.headers.get("Retry-After", "")
            raise failures.of_answer(attempt, response.status, data, retry_after)
        return data

    async def lines(
        self, attempt: Attempt, path: str, query: Mapping[str, str]
    ) -> AsyncGenerator[bytes]:
        """The lines of an answer that does not end; use ``contextlib.aclosing``.

        Silence for longer than ``WATCH_TIMEOUT`` ends it without an error: that is either a dead
        connection or a kind that nobody changes, for which the API server has no bookmarks to
        send. Whoever watches on finds out which.
        """
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        request = _Request(attempt, "GET", path, query, headers, WATCH_TIMEOUT)
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._open(request)
            async with response:
                if not response.ok:
                    retry_after = response.headers.get("Retry-After", "")
                    body = await response.read()
                    raise failures.of_answer(attempt, response.status, body, retry_after)
                try:
                    async with aclosing(wire.split_lines(response.content.iter_any())) as lines:
                        async for line in lines:
                            yield line
                finally:
                    _abort(response)
        except aiohttp.SocketTimeoutError as exc:
            if response is None:
                raise failures.of_exception(attempt, exc) from exc
        except _FAILURES as exc:
            raise failures.of_exception(attempt, exc) from exc

    async def _open(self, request: _Request) -> aiohttp.ClientResponse:
        """An answer other than 401, its body unread; one 401 is healed by newer credentials."""
        for _ in range(2):
            generation = self._credentials.generation
            _, url, sent, _, _ = await self._api.param_serialize(
                request.method,
                request.path,
                query_params=dict(request.query),
                header_params=dict(request.headers),
                auth_settings=["BearerToken"],
            )
            await self._show_certificate()
            # The body goes past param_serialize, which would copy it only to find nothing to do.
            answer = await self._api.call_api(
                request.method, url, sent, body=request.body, _request_timeout=request.timeout
            )
            response: aiohttp.ClientResponse = answer.response
            if response.status != HTTPStatus.UNAUTHORIZED:
                self._note_accepted()
                return response
            response.close()
            if not await self._credentials.renew(generation):
                break
        self._note_refused()
        message = f"cannot {request.attempt}: the API server does not accept our credentials"
        raise KubeError(
            Reason.UNAUTHORIZED,
            message,
            status=HTTPStatus.UNAUTHORIZED,
            retry_after_s=_RETRY_UNAUTHORIZED_S,
        )

    async def _show_certificate(self) -> None:
        """Have new connections from now on if there is another client certificate than before.

        Those of the pool keep the one that they began with: the API server refuses each request on
        them. What is under way there, watches above all, may end.
        """
        if self._certificate == self._credentials.generation:
            return
        self._certificate = self._credentials.generation
        if self._credentials.configuration.cert_file:
            rest = self._api.rest_client
            old, self._retired, rest.pool_manager = self._retired, rest.pool_manager, None
            if old is not None:
                await old.close()

    def _note_refused(self) -> None:
        if not self._refused:
            self._refused = True
            log.error("the API server does not accept our credentials; waiting for new ones")

    def _note_accepted(self) -> None:
        if self._refused:
            self._refused = False
            log.info("the API server accepts our credentials again")


def _abort(response: aiohttp.ClientResponse) -> None:
    """Leave an answer that has not ended: a polite end of TLS would wait for the other side."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
