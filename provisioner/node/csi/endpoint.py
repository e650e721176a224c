"""A gRPC server on a unix socket, for as long as the socket's file exists.

gRPC takes a path over from another listener, and removes it at its end even if it is another
process's by then. So the server listens under a hidden name in the same directory, which is then
renamed: the path is replaced atomically, and gRPC never removes it. The kubelet ignores hidden
names in its plugin registry.
"""

import asyncio
import os
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import grpc.aio
import structlog

from provisioner.model.errors import NodeError, Reason

log = structlog.get_logger(__name__)

_POLL_S = 2.0
_ANSWERS_S = 1.0
_MOST_BYTES = 107  # of ``sun_path``, without the NUL
_FOLDER_MODE = 0o750  # as the kubelet creates its own
_SOCKET_MODE = 0o600
_OPTIONS = (("grpc.so_reuseport", 0),)


class Endpoint:
    """One socket file and the server behind it.

    Args:
        path: absolute; its directory is created if missing.
        handlers: the services.
        poll_s: how often to check that the file still exists, in seconds.
    """

    def __init__(
        self,
        path: Path,
        handlers: Sequence[grpc.GenericRpcHandler],
        *,
        poll_s: float = _POLL_S,
    ) -> None:
        self.path = path
        self._handlers = tuple(handlers)
        self._poll_s = poll_s
        self._server: grpc.aio.Server | None = None
        self._is: tuple[int, int] | None = None
        self._is_renewing = False

    async def open(self) -> None:
        """Listen.

        A socket file without a listener is replaced.

        Raises:
            NodeError: TARGET_BUSY, another process answers there, or it is no socket;
                INVALID_REQUEST, the path is too long, or its directory cannot be written.
        """
        await self._refuse_other_files()
        hidden = self.path.with_name(_hidden_name(self.path.name))
        if len(os.fsencode(hidden)) > _MOST_BYTES:
            raise NodeError(
                Reason.INVALID_REQUEST,
                f"{hidden} is longer than {_MOST_BYTES} bytes, the limit for the path of a "
                "socket; use a shorter --kubelet-dir",
            )
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(self._handlers)
        try:
            _make_folder(self.path.parent)
            server.add_insecure_port(f"unix:{quote(str(hidden))}")
            await server.start()
            self._is = _take(hidden, self.path)
        except (OSError, RuntimeError) as error:
            await server.stop(None)
            raise NodeError(
                Reason.INVALID_REQUEST, f"cannot listen on {self.path}: {error}"
            ) from error
        self._server = server

    async def lost(self) -> None:
        """Return once the file is gone or replaced, so that the kubelet cannot reach us.

        The file is polled, not watched: a watch ends with its directory, which is removed, too,
        when the kubelet's directories are wiped.
        """
        while self._is_renewing or self._is_ours():  # noqa: ASYNC110 -- a file is no event
            await asyncio.sleep(self._poll_s)

    async def renew(self) -> None:
        """Remove and create the file again, which makes the kubelet register us again."""
        self._is_renewing = True
        try:
            await self.close(0.0)
            await self.open()
        except NodeError as error:
            log.warning("could not create a socket again", path=str(self.path), why=error.message)
        finally:
            self._is_renewing = False

    async def close(self, grace_s: float, *, leave_file: bool = False) -> None:
        """Accept no more calls, and cancel those that still run after the grace period."""
        if self._is_ours() and not leave_file:
            self.path.unlink(missing_ok=True)
        if self._server is not None:
            await self._server.stop(grace_s)

    def _is_ours(self) -> bool:
        return self._is is not None and _identity(self.path) == self._is

    async def _refuse_other_files(self) -> None:
        mode = _mode(self.path)
        if mode is None:
            return
        if not stat.S_ISSOCK(mode):
            raise NodeError(
                Reason.TARGET_BUSY,
                f"{self.path} exists and is not a socket; it is not ours: remove it by hand",
            )
        if await _answers(self.path):
            raise NodeError(
                Reason.TARGET_BUSY,
                f"another process answers on {self.path}: another node plugin of the same driver "
                "is running on this node; remove its DaemonSet first",
            )
        log.info("replacing a socket file without a listener", path=str(self.path))


async def _answers(path: Path) -> bool:
    """Whether a process listens; one that is too busy to accept the connection does."""
    try:
        async with asyncio.timeout(_ANSWERS_S):
            _, writer = await asyncio.open_unix_connection(path)
    except TimeoutError:
        return True
    except OSError:
        return False
    writer.close()
    return True


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)


def _take(hidden: Path, path: Path) -> tuple[int, int] | None:
    hidden.chmod(_SOCKET_MODE)
    hidden.rename(path)
    return _identity(path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except OSError:
        return None


def _hidden_name(name: str) -> str:
    """A short name of our own beside a socket: the kubelet's directory may be a long one.

    In their containers all plugins are process 1, and those of two drivers share the kubelet's
    registry.
    """
    return f".{zlib.crc32(name.encode()) ^ os.getpid():x}"
