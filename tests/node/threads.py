"""A machine that starts no thread any more: its limit of processes, or its memory, is used up."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Never
from unittest.mock import patch


@contextmanager
def none_starts() -> Iterator[None]:
    """Python's own error of such a machine, whoever starts a thread."""

    def start(_: threading.Thread) -> Never:
        raise RuntimeError("can't start new thread")

    with patch.object(threading.Thread, "start", start):
        yield
