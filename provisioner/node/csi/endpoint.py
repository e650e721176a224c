"""A unix socket on which a gRPC server answers, for as long as its file is there.

gRPC takes a path away from whoever listens there, and removes it at its end even if it is another's
by then. So the server listens under a hidden name beside it, which is then renamed: the path
changes hands at once, and never twice. The kubelet overlooks hidden names where it looks for
plugins.
"""

import asyncio
import os
import stat
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
_FOLDER_MODE = 0o750  # as kubelet makes its own
_SOCKET_MODE = 0o600
_OPTIONS = (("grpc.so_reuseport", 0),)


class Endpoint:
    """One socket file and the server behind it.

    Args:
        path: absolute; its folder is made if it is missing.
        handlers: the services.
        poll_s: how often it is looked whether the file is still there.
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

        A socket file on which nobody answers any more is replaced.

        Raises:
            NodeError: TARGET_BUSY, somebody answers there, or it is no socket; INVALID_REQUEST, the
                path is too long for a socket, or its folder cannot be written.
        """
        await self._refuse_what_is_there()
        hidden = self.path.with_name(f".{os.getpid()}")
        if max(len(os.fsencode(each)) for each in (self.path, hidden)) > _MOST_BYTES:
            raise NodeError(
                Reason.INVALID_REQUEST,
                f"{self.path} is longer than the {_MOST_BYTES} bytes that a socket's path can "
                "have; a shorter --kubelet-dir would help",
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
        """Return once the file is gone, or another's: nobody finds us any more.

        It is looked at, not watched: a watch ends with its folder, and whoever wipes a kubelet's
        folders wipes all of them.
        """
        while self._is_renewing or self._is_ours():  # noqa: ASYNC110 -- a file is no event
            await asyncio.sleep(self._poll_s)

    async def renew(self) -> None:
        """Take the file away and make it anew, for whoever watches it; else it is lost."""
        self._is_renewing = True
        try:
            await self.close(0.0)
            await self.open()
        except NodeError as error:
            log.warning("a socket was not made anew", path=str(self.path), why=error.message)
        finally:
            self._is_renewing = False

    async def close(self, grace_s: float, *, leave_file: bool = False) -> None:
        """Take no more calls, and give those that run some time; then they are cancelled."""
        if self._is_ours() and not leave_file:
            self.path.unlink(missing_ok=True)
        if self._server is not None:
            await self._server.stop(grace_s)

    def _is_ours(self) -> bool:
        return self._is is not None and _identity(self.path) == self._is

    async def _refuse_what_is_there(self) -> None:
        mode = _mode(self.path)
        if mode is None:
            return
        if not stat.S_ISSOCK(mode):
            raise NodeError(
                Reason.TARGET_BUSY,
                f"{self.path} is there and is no socket; it is not ours, so remove it by hand",
            )
        if await _answers(self.path):
            raise NodeError(
                Reason.TARGET_BUSY,
                f"another process answers on {self.path}: another node plugin of the same driver "
                "runs on this node; remove its DaemonSet first",
            )
        log.info("a socket file was left over", path=str(self.path))


async def _answers(path: Path) -> bool:
    """Whether somebody listens; one who is too busy to take the connection does."""
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
