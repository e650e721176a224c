"""Where the API server is, and credentials that stay valid for as long as the process runs.

``kubernetes.aio`` reads kubeconfig files and in-cluster files, but never again afterwards: a token
file, an ``exec`` plugin's token or a projected service account token would expire after an hour.
So the sources are read again once a minute, and at once when the API server answers 401.
"""

import asyncio
import binascii
import contextlib
import hashlib
import logging
import os
import re
import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import structlog
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import kube_config, load_incluster_config, load_kube_config
from yarl import URL

from provisioner.kube import impersonation_rules
from provisioner.kube.impersonation_rules import NOBODY_ELSE, Impersonation
from provisioner.model.errors import KubeError, Reason

REFRESH_S = 60.0
RENEW_EVERY_S = 5.0  # after a 401: an exec plugin is a process, thousands of requests may fail
_LOAD_S = 30.0

_keeping: ContextVar[list[str] | None] = ContextVar("_keeping", default=None)

log = structlog.get_logger(__name__)


class Credentials:
    """A configuration that renews itself.

    Attributes:
        configuration: what ``ApiClient`` is made from; its token changes in place.
        generation: grows whenever other credentials were found than before.
        headers: those of each request, that say whom it impersonates.
    """

    def __init__(
        self,
        kubeconfig: str | None,
        context: str | None = None,
        impersonate: Impersonation = NOBODY_ELSE,
    ) -> None:
        self._path = kubeconfig or os.environ.get("KUBECONFIG") or None
        self._context = context
        self._impersonate = impersonate
        self._loader: Any = None
        self._lock = asyncio.Lock()
        self._fingerprint = ""
        self._refresh_at = 0.0
        self._renew_at = 0.0
        self._ssl: ssl.SSLContext | None = None
        self.configuration: Any = Configuration()
        self.generation = 0
        self.headers: list[tuple[str, str]] = []

    async def load(self) -> None:
        """Read the configuration for the first time.

        Raises:
            KubeError: UNREACHABLE with one line that says where it was looked for and what failed.
        """
        if self._path is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
            message = (
                "no Kubernetes API server is configured: "
                "name a kubeconfig, set KUBECONFIG, or run in a pod"
            )
            raise KubeError(Reason.UNREACHABLE, message)
        if self._path is not None and not any(map(os.path.exists, self._path.split(os.pathsep))):
            message = f"there is no kubeconfig {self._path}"
            raise KubeError(Reason.UNREACHABLE, message)
        try:
            await self._read()
            _check_certificates(self.configuration)
        except Exception as exc:  # the loaders may raise anything on a malformed file
            message = f"cannot use {self._path or 'the in-cluster configuration'}: {_why(exc)}"
            raise KubeError(Reason.UNREACHABLE, message) from exc
        self._refresh_at = time.monotonic() + REFRESH_S
        self.configuration.refresh_api_key_hook = self._refresh
        if self.configuration.proxy is None:
            self.configuration.proxy = proxy_for(self.configuration.host)

    def serve(self, context: ssl.SSLContext) -> None:
        """Keep the client certificate of this TLS context up to date from now on."""
        self._ssl = context

    async def renew(self, generation: int) -> bool:
        """Look for new credentials after a 401.

        Args:
            generation: ``generation`` at the time of the request that was refused.

        Returns:
            Whether another try makes sense now.
        """
        async with self._lock:
            if self.generation == generation and time.monotonic() >= self._renew_at:
                self._loader = None  # the kubeconfig itself may be another one by now
                await self._reread()
                self._renew_at = time.monotonic() + RENEW_EVERY_S
            return self.generation != generation

    async def _refresh(self, _: Any) -> None:
        """Hook of ``Configuration``: runs before each request."""
        if time.monotonic() >= self._refresh_at and not self._lock.locked():
            async with self._lock:
                await self._reread()

    async def _reread(self) -> None:
        self._refresh_at = time.monotonic() + REFRESH_S
        try:
            await self._read()
        except Exception as exc:  # as in load(); the old credentials may still be good
            log.warning("cannot read the Kubernetes credentials again", error=_why(exc))

    async def _read(self) -> None:
        server = self.configuration.host
        async with asyncio.timeout(_LOAD_S):
            with _plugin_failures() as failures:
                await self._load()
        if failures:
            raise ValueError(f"its exec plugin returned no credentials: {_one_line(failures[0])}")
        if not _is_url(found := self.configuration.host):
            self.configuration.host = server
            raise ValueError(f"its server {found!r} is not a URL such as https://10.0.0.1:6443")
        self._notice_change()

    async def _load(self) -> None:
        if self._path is None:
            load_incluster_config(self.configuration, try_refresh_token=False)
        elif self._loader is None:
            self._loader = await load_kube_config(
                self._path, self._context, self.configuration, persist_config=False
            )
        else:  # the same loader: it knows until when an exec plugin's token is valid
            await self._loader.load_and_set(self.configuration)
        self.headers = self._impersonate.over(self._impersonation()).headers()

    def _impersonation(self) -> Impersonation:
        """As the kubeconfig's user says; the loader has read it, and makes nothing of it."""
        user = getattr(self._loader, "_user", None)
        return impersonation_rules.of_user(user.value) if user is not None else NOBODY_ELSE

    def _notice_change(self) -> None:
        config = self.configuration
        token = config.api_key.get("BearerToken", "").strip()
        if token:
            config.api_key["BearerToken"] = token
        digest = hashlib.sha256(token.encode())
        for file in (config.cert_file, config.key_file):
            digest.update(Path(file).read_bytes() if file else b"-")
        fingerprint = digest.hexdigest()
        if self._fingerprint and fingerprint != self._fingerprint:
            self.generation += 1
            if self._ssl is not None and config.cert_file:
                self._ssl.load_cert_chain(config.cert_file, config.key_file)
        self._fingerprint = fingerprint


def proxy_for(host: str) -> str | None:
    """The proxy that the environment names for the API server.

    aiohttp's own ``trust_env`` looks this up, and ~/.netrc, in a thread before *each* request.
    """
    url = URL(host)
    if urllib.request.proxy_bypass(f"{url.host}:{url.port}"):
        return None
    return urllib.request.getproxies().get(url.scheme)


@contextlib.contextmanager
def _plugin_failures() -> Iterator[list[str]]:
    """What goes wrong with an exec plugin, which the loader logs only, to go on without a token."""
    keeper = _Keeper(logging.ERROR)
    kube_config.logger.addHandler(keeper)
    _keeping.set(keeper.said)
    try:
        yield keeper.said
    finally:
        kube_config.logger.removeHandler(keeper)


class _Keeper(logging.Handler):
    """Keeps messages in place of printing them; another task's are that one's matter."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if _keeping.get() is self.said:
            self.said.append(record.getMessage())


def _is_url(server: str) -> bool:
    try:
        return bool(URL(server).host) and re.match(r"https?://\S+$", server) is not None
    except ValueError:  # a port that cannot be, half an IPv6 address
        return False


def _check_certificates(config: Any) -> None:
    """Name what cannot be read; ``ssl`` itself does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        what = "certificate authority"
        if config.ssl_ca_cert:
            context.load_verify_locations(config.ssl_ca_cert)
        what = "client certificate and key"
        if config.cert_file:
            context.load_cert_chain(config.cert_file, config.key_file)
    except OSError as exc:
        raise ValueError(f"its {what} cannot be read as PEM: {_one_line(str(exc))}") from exc


def _why(exc: Exception) -> str:
    """One line about a configuration that the loaders stumbled over."""
    match exc:
        case AttributeError() | KeyError() | TypeError():
            # They index what they have read without a look at it.
            return "it is empty, or not a mapping of clusters, contexts and users"
        case binascii.Error():
            return f"its certificate data is not base64: {exc}"
        case TimeoutError():
            return f"loading it takes more than {_LOAD_S:.0f} s"
    return _one_line(str(exc)) or type(exc).__name__


def _one_line(text: str) -> str:
    """Without line breaks, and without the number of an ``OSError``."""
    return re.sub(r"^\[Errno \d+\] ", "", " ".join(text.split()))
