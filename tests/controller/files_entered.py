"""Which files of the product a story enters, as a reader who follows it would."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import provisioner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT = Path(provisioner.__file__).parent


class FilesEntered:
    """The files of which functions were called, by their paths below ``provisioner``."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._before = sys.getprofile()

    @contextmanager
    def noted(self) -> Iterator[FilesEntered]:
        """Note files until the block, or ``stop``, ends it."""
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        """Note no more."""
        sys.setprofile(self._before)

    def of(self, *folders: str) -> set[str]:
        """Those in these folders."""
        paths = (Path(file) for file in self._files)
        ours = {path.relative_to(ROOT).as_posix() for path in paths if ROOT in path.parents}
        return {path for path in ours if path.startswith(folders)}

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._files.add(frame.f_code.co_filename)
