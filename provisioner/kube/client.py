"""Requests to the Kubernetes API: one at a time, statuses checked, errors ours.

``kubernetes.aio`` supplies configuration, credentials and transport (``param_serialize`` and
``call_api``); its models and API classes are never used: decoding 5,000 persistent volumes into
them costs 1.2 s and 98 MB, into our structs 0.02 s and 24 MB.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import aiohttp
import structlog
from kubernetes.aio.client.api_client import ApiClient
from multidict import CIMultiDict

from provisioner.kube import failures, wire
from provisioner.kube.credentials import Credentials
from provisioner.kube.failures import Attempt
from provisioner.kube.impersonation_rules import NOBODY_ELSE, Impersonation
from provisioner.kube.resources import Resource, T, whole
from provisioner.kube.shared_reads import SharedReads
from provisioner.kube.wire import Listing
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.slices import between_slices

PAGE_SIZE = 500
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
        data, _ = await self.exchange(
            attempt, method, path, query=query, body=body, content_type=content_type, accept=accept
        )
        return data

    async def exchange(
        self,
        attempt: Attempt,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[bytes, Mapping[str, str]]:
        """One request; body and headers of its successful answer."""
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
        return data, response.headers

    async def lines(
        self, attempt: Attempt, path: str, query: Mapping[str, str]
    ) -> AsyncGenerator[bytes]:
        """The lines of an answer that does not end; use ``contextlib.aclosing``.

        Silence for longer than ``WATCH_TIMEOUT`` ends it without an error: that is either a dead
        connection or a kind that nobody changes, for which the API server has no bookmarks to
        send. The watch that follows shows which.
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
            if self._credentials.headers:
                sent = CIMultiDict([*sent.items(), *self._credentials.headers])
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
        message = f"cannot {request.attempt}: the API server rejects our credentials"
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
            log.error("the API server rejects our credentials; waiting for new ones")

    def _note_accepted(self) -> None:
        if self._refused:
            self._refused = False
            log.info("the API server accepts our credentials again")


class Patch(StrEnum):
    """Kinds of patches, as their content types."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    # Server-side apply: what is sent is all that the manager owns; a missing object is created.
    APPLY = "application/apply-patch+yaml"
    # Operations in order, all or none; a "test" that fails is answered with 422.
    JSON = "application/json-patch+json"


class KubeClient:
    """A connection pool to one API server.

    At most ``concurrency`` requests are under way at once; the others wait their turn, in order
    and without their timeout running. Watches do not count. Something that must never wait behind
    1,000 writes, such as a lease, gets a client of its own.

    All methods raise ``KubeError``; see ``failures`` for the table.
    """

    def __init__(
        self, transport: Transport, send: Callable[..., Awaitable[bytes]] | None = None
    ) -> None:
        self._transport = transport
        self._send = send or transport.send

    @classmethod
    async def connect(
        cls,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        impersonate: Impersonation = NOBODY_ELSE,
        concurrency: int = CONCURRENCY,
    ) -> Self:
        """A client for the named kubeconfig, else ``KUBECONFIG``, else the pod's own cluster.

        ``impersonate`` goes before what the kubeconfig says of the same.

        Raises:
            KubeError: one clear line when there is no usable configuration.
        """
        credentials = Credentials(kubeconfig, context, impersonate)
        await credentials.load()
        return cls(Transport(credentials, concurrency=concurrency))

    def narrowed(self, concurrency: int) -> Self:
        """The same connections for work that has time: few of its requests are under way at once.

        So those of others find the API server free, and never wait behind all of these. What is
        asked more than once at the same time is read once. What creates or deletes does not wait:
        somebody may be without an object until then.
        """
        slots, reads = asyncio.Semaphore(concurrency), SharedReads[bytes]()

        async def slowly(*arguments: Any, **options: Any) -> bytes:
            async with slots:
                return await self._send(*arguments, **options)

        async def send(attempt: Attempt, method: str, path: str, **options: Any) -> bytes:
            query = options.get("query") or {}
            if method in ("POST", "DELETE") and "dryRun" not in query:
                return await self._send(attempt, method, path, **options)
            ask = partial(slowly, attempt, method, path, **options)
            if method != "GET":
                return await ask()
            return await reads.read((path, *query.items(), options.get("accept")), ask)

        return type(self)(self._transport, send)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """One object, as it is now."""
        attempt = _attempt("get", resource, name, namespace)
        if not _may_exist(name):
            message = f"cannot {attempt}: no object can have this name"
            raise KubeError(Reason.OBJECT_NOT_FOUND, message, status=HTTPStatus.NOT_FOUND)
        data = await self._send(attempt, "GET", resource.path(name, namespace))
        return wire.decode_object(resource, data)

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        field_selector: str = "",
        keep: Callable[[T], Any] = whole,
        trim: Callable[[T], Any] = whole,
        most: int = 0,
    ) -> Listing[T]:
        """All objects, live and consistent, read page by page; or the first ones, ``most`` of them.

        Only one page of raw JSON is held at a time. An object that cannot be decoded is named in
        ``unreadable_keys``; it does not fail the list. The items are what ``keep`` returns of
        each object after ``trim``, without the Nones (see ``Projection``). A ``field_selector``
        such as ``metadata.name=data`` leaves out what does not match it.

        The listing's version is the newest that there is, of whatever kind: a list that asks for
        no version is never older than the request (API concepts, "Resource versions").
        """
        query = {"limit": str(most or PAGE_SIZE)} | _selected(field_selector)
        attempt = _attempt("list", resource, "", namespace)
        path = resource.path(namespace=namespace)
        reader = wire.PageReader(resource, keep, trim)
        while True:
            # Without a name for the page, so that it is gone when the next one comes.
            await between_slices(
                reader.reading(await self._send(attempt, "GET", path, query=query))
            )
            if most or not reader.token:
                return reader.listing(is_all=not reader.token)
            query["continue"] = reader.token

    async def create(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        strict: bool = False,
    ) -> T:
        """POST an object; with a name and a subresource, POST to that (``token``, ``eviction``).

        With ``dry_run`` it is checked, by admission webhooks too, and not kept. With ``strict``, a
        field that the API server does not know is refused instead of left out.
        """
        target = name or str(body.get("metadata", {}).get("name", ""))
        attempt = _attempt("create", resource, target, namespace, subresource)
        path = resource.path(name, namespace, subresource)
        query = {"dryRun": "All"} if dry_run else {}
        query |= {"fieldValidation": "Strict"} if strict else {}
        data = await self._send(attempt, "POST", path, query=query, body=body)
        return _decoded(attempt, resource, data)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        kind: Patch,
        namespace: str = "",
        subresource: str = "",
        manager: str = "",
    ) -> T:
        """Change an object; the answer is the object afterwards.

        ``APPLY`` needs a ``manager`` of fields, who takes them from others that own them.
        """
        attempt = _attempt("patch", resource, name, namespace, subresource)
        path = resource.path(name, namespace, subresource)
        query = {"fieldManager": manager, "force": "true"} if kind is Patch.APPLY else {}
        data = await self._send(
            attempt, "PATCH", path, query=query, body=body, content_type=kind.value
        )
        return _decoded(attempt, resource, data)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
    ) -> T | None:
        """Delete an object, if it still is the one with this UID and version (where given).

        Returns:
            The object when finalizers keep it, or as it last was; None for a bare success.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        conditions = {key: value for key, value in wanted.items() if value}
        body = {"preconditions": conditions} if conditions else None
        attempt = _attempt("delete", resource, name, namespace)
        data = await self._send(attempt, "DELETE", resource.path(name, namespace), body=body)
        return None if wire.is_status(data) else _decoded(attempt, resource, data)

    async def version(self) -> tuple[str, str]:
        """The API server's version, such as "v1.36.3", and the Date of its answer (RFC 9110)."""
        attempt = Attempt("get", "/version")
        data, headers = await self._transport.exchange(attempt, "GET", "/version")
        return wire.read_version(data), headers.get("Date", "")

    async def text(self, path: str) -> str:
        """What a path answers that has no kind: a pod's metrics, by the API server's proxy."""
        data = await self._send(Attempt("get", path), "GET", path, accept="*/*")
        return data.decode(errors="replace")

    async def served(self) -> frozenset[tuple[str, str]]:
        """All kinds that the API server has, as ("v1" or "group/version", plural)."""
        found: set[tuple[str, str]] = set()
        for path in ("/api", "/apis"):
            attempt = Attempt("get", path)
            found |= wire.read_served(
                await self._send(attempt, "GET", path, accept=wire.AGGREGATED)
            )
        return frozenset(found)

    async def watch(
        self,
        resource: Resource[T],
        *,
        resource_version: str,
        timeout_s: int,
        namespace: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[wire.WatchLine]:
        """Changes since a version, with bookmarks, until the server closes; use ``aclosing``.

        Args:
            resource: what to watch.
            resource_version: from where on; of a list, or of the last line seen.
            timeout_s: after this time the server closes the watch.
            namespace: "" for all.
            field_selector: "" for all; see ``list``.

        Raises:
            KubeError: EXPIRED when the version is too old; others when the connection breaks.
        """
        attempt = _attempt("watch", resource, "", namespace)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        } | _selected(field_selector)
        path = resource.path(namespace=namespace)
        async with aclosing(self._transport.lines(attempt, path, query)) as lines:
            async for line in lines:
                yield wire.decode_line(attempt, line)


async def patch_status(
    client: KubeClient,
    resource: Resource[T],
    obj: T,
    status: Mapping[str, Any],
    *,
    annotations: Mapping[str, str | None] | None = None,
    kind: Patch = Patch.MERGE,
    guarded: bool = True,
) -> T:
    """Patch ``status`` of the very object that was seen; the answer is the object afterwards.

    Lists are replaced whole by ``Patch.MERGE``. ``Patch.STRATEGIC``, for kinds that are no custom
    resources, merges conditions by their type, so that those of others stay; one is removed by
    ``{"type": ..., "$patch": "delete"}``.

    ``status`` and ``annotations`` are what changes; None removes. Not ``guarded``, only another
    object under its name is refused.

    Raises:
        KubeError: CONFLICT when it has changed: look again, and tell nobody.
    """
    meta = obj.metadata
    metadata: dict[str, Any] = {"uid": meta.uid}
    if guarded:
        metadata["resourceVersion"] = meta.resource_version
    if annotations:
        metadata["annotations"] = dict(annotations)
    return await client.patch(
        resource,
        meta.name,
        {"metadata": metadata, "status": dict(status)},
        kind=kind,
        namespace=meta.namespace,
        subresource="status",
    )


async def find(
    client: KubeClient, resource: Resource[T], name: str, namespace: str = ""
) -> T | None:
    """An object as it is now; None only when the API server has none of that name.

    Raises:
        KubeError: it could not be read.
    """
    try:
        return await client.get(resource, name, namespace)
    except KubeError as error:
        if error.reason is Reason.OBJECT_NOT_FOUND:
            return None
        raise


def _attempt(
    verb: str, resource: Resource[T], name: str, namespace: str, subresource: str = ""
) -> Attempt:
    kind = f"{resource.plural}/{subresource}" if subresource else resource.plural
    where = f"{namespace}/{name}" if namespace else name
    return Attempt(verb, f"{kind} {where}".rstrip())


def _may_exist(name: str) -> bool:
    """Whether a name can stand in a path (Kubernetes 1.36, apimachinery pkg/api/validation/path).

    A pod may name any claim that it likes, "../secrets/x" too: validation of pods only asks for
    some name (validatePersistentClaimVolumeSource).
    """
    return name not in {".", ".."} and not any(each in name for each in "/%")


def _selected(field_selector: str) -> dict[str, str]:
    return {"fieldSelector": field_selector} if field_selector else {}


def _decoded(attempt: Attempt, resource: Resource[T], data: bytes) -> T:
    """The answer to a write that was carried out, whether or not it can be read."""
    try:
        return wire.decode_object(resource, data)
    except KubeError as exc:
        message = f"{attempt} succeeded, but {exc.message}"
        raise KubeError(exc.reason, message, outcome=Outcome.UNKNOWN) from exc


def _abort(response: aiohttp.ClientResponse) -> None:
    """Leave an answer that has not ended: a polite end of TLS would wait for the other side."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
