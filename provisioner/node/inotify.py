"""Waiting for names to come in folders, by the kernel's inotify.

A name that comes between looking and waiting is not missed, if the folder is followed first: the
kernel keeps the event until it is read.
"""

import asyncio
import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

# linux/inotify.h
_CREATE, _MOVED_TO, _ATTRIB, _DELETE_SELF, _ONLY_DIRECTORIES = 0x100, 0x80, 0x4, 0x400, 0x01000000
_MASK = _CREATE | _MOVED_TO | _ATTRIB | _DELETE_SELF | _ONLY_DIRECTORIES
_EVENTS_BYTES = 64 * 1024
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Tells that something came or changed in folders; a context manager within a running loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:  # the user's instances are used up (fs.inotify.max_user_instances)
            return
        self._loop.add_reader(self._fd, self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)

    def follow(self, folders: Iterable[Path]) -> None:
        """Follow these folders too, as far as they exist; one that is followed already is kept."""
        self._changed.clear()
        for folder in folders:
            if self._fd >= 0:  # a folder that is not there is made in one that is followed
                _libc.inotify_add_watch(self._fd, os.fsencode(folder), _MASK)

    async def changed(self, timeout_s: float) -> None:
        """Wait until something has changed since the last ``follow``, or until the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def _read(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, _EVENTS_BYTES)  # also if the queue ran over: then look, too
        self._changed.set()
