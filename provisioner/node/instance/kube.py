"""The node plugin's small client of the API server: a few reads with the service account's token.

It does not load ``kubernetes``, which would take more memory than the rest of the node plugin.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from provisioner.kube import failures
from provisioner.kube.failures import Attempt
from provisioner.model import depth
from provisioner.model.attachment import attachment_name
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.node.instance.documents import AttachmentView, NodeView
from provisioner.node.instance.http_client import HttpClient

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
USER_AGENT = "ebs-provisioner-node"
_TIMEOUT = aiohttp.ClientTimeout(total=5, sock_connect=2)
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)
_ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the API server is, and the credentials for it.

    Attributes:
        url: for example https://10.96.0.1:443.
        token_file: a service account's token; read for each request, because kubelet renews it.
        ca_file: the CA certificates, in PEM; None for plain HTTP.
    """

    url: str
    token_file: Path
    ca_file: Path | None

    @classmethod
    def in_cluster(cls, environment: Mapping[str, str]) -> "ApiServer":
        """As kubelet configures it in each pod.

        Raises:
            NodeError: NOT_SUPPORTED, this is not a pod.
        """
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        if not host:
            message = (
                "no Kubernetes API server is configured: KUBERNETES_SERVICE_HOST is not set; "
                "run in a pod, or set --kube-server, --token-file and --ca-file"
            )
            raise NodeError(Reason.NOT_SUPPORTED, message)
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt")


class NodeKube(HttpClient):
    """Reads what one node needs; each failure is a ``KubeError`` with one sentence.

    Only a 401 is retried here, once, with a newer token: kubelet and our loops retry the rest.
    """

    def __init__(self, server: ApiServer, node_name: str, *, driver: str = EBS_DRIVER) -> None:
        self.node_name = node_name
        self.driver = driver
        self._node = Attempt("get", f"nodes {node_name}")
        self._node_path = f"/api/v1/nodes/{node_name}"
        self._server = server

    async def node(self) -> NodeView:
        """The Node that this process runs on.

        Raises:
            KubeError: OBJECT_NOT_FOUND, there is none; others.
        """
        data = await self._read(self._node, self._node_path)
        return _decoded(self._node, data, NodeView)

    async def attachment(self, volume_id: str) -> AttachmentView | None:
        """The attachment of a volume to this node; None if there is none.

        Its name is computed from the volume handle in the PersistentVolume. If that is not the id,
        as in CSI volumes with an old ``aws://ZONE/vol-…``, the Node's status has it as written.
        """
        found = await self._attachment(volume_id)
        if found is not None:
            return found
        node = await self._find(self._node, self._node_path, NodeView)
        handles = node.handles_of(volume_id, self.driver) if node is not None else frozenset()
        for handle in sorted(handles - {volume_id}):
            if (found := await self._attachment(handle)) is not None:
                return found
        return None

    async def persistent_volume(self, name: str) -> PersistentVolume | None:
        """A PersistentVolume; None if there is none."""
        attempt = Attempt("get", f"persistentvolumes {name}")
        return await self._find(attempt, f"/api/v1/persistentvolumes/{name}", PersistentVolume)

    async def _attachment(self, handle: str) -> AttachmentView | None:
        name = attachment_name(handle, self.driver, self.node_name)
        attempt = Attempt("get", f"volumeattachments {name}")
        return await self._find(attempt, f"{_ATTACHMENTS}/{name}", AttachmentView)

    async def _find(self, attempt: Attempt, path: str, type_: type[T]) -> T | None:
        try:
            return _decoded(attempt, await self._read(attempt, path), type_)
        except KubeError as exc:
            if exc.reason is Reason.OBJECT_NOT_FOUND:
                return None
            raise

    async def _read(self, attempt: Attempt, path: str) -> bytes:
        """A successful answer; a 401 is retried if the token has changed."""
        token = ""
        while True:
            before, token = token, _token(attempt, self._server.token_file)
            try:
                async with self._connected(attempt).get(
                    self._server.url + path,
                    headers={"Authorization": f"Bearer {token}"},
                    timeout=_TIMEOUT,
                ) as response:
                    data = await response.read()
            except _FAILURES as exc:
                if isinstance(exc, aiohttp.ClientConnectorCertificateError):
                    await self.close()  # reads the CA file again: the CA may have been replaced
                raise failures.of_exception(attempt, exc) from exc
            if response.ok:
                return data
            if response.status != HTTPStatus.UNAUTHORIZED or token == before:
                retry_after = response.headers.get("Retry-After", "")
                raise failures.of_answer(attempt, response.status, data, retry_after)

    def _connected(self, attempt: Attempt) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=_trust(attempt, self._server.ca_file), limit=8),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "application/json", "User-Agent": USER_AGENT},
            )
        return self._session


def _decoded(attempt: Attempt, data: bytes, type_: type[T]) -> T:
    try:
        return depth.decode(msgspec.json.Decoder(type_), data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        message = f"cannot read the answer to {attempt}: {exc}"
        raise KubeError(Reason.UNREADABLE, message) from exc


def _token(attempt: Attempt, path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as exc:
        message = f"cannot {attempt}: the token {path} cannot be read: {exc.strerror}"
        raise KubeError(Reason.UNAUTHORIZED, message) from exc


def _trust(attempt: Attempt, ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as exc:  # also ssl.SSLError
        why = exc.strerror or exc
        message = f"cannot {attempt}: the certificate authority {ca_file} cannot be used: {why}"
        raise KubeError(Reason.UNREACHABLE, message) from exc
