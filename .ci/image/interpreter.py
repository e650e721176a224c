"""The image's own Python, run on the building machine: it compiles bytecode and compresses.

Bytecode and compressed bytes depend on the versions of Python and zlib. With those of the image, an
image has the same digest whichever machine builds it, and bytecode is always of the right version.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from image import recipe, tree
from image.errors import ImageError
from image.tree import Entry, Tree

_COMPILE: Final = """\
import py_compile, sys
folder = sys.argv[1]
for line in sys.stdin:
    path = line.rstrip("\\n")
    try:
        py_compile.compile(
            f"{folder}/{path}", dfile=f"/{path}", doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except (py_compile.PyCompileError, UnicodeError):
        print(path)  # templates and the like
"""
# Level 9 takes three times the CPU, for layers that are half a percent smaller (14.7 and 4.6 s for
# 128 MiB, 2026-11-23).
_COMPRESS: Final = """\
import sys, zlib
deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
sys.stdout.buffer.write(deflate.compress(sys.stdin.buffer.read()) + deflate.flush())
"""


def host_architecture() -> str:
    """Return the architecture of this machine, as Debian calls it.

    Raises:
        ImageError: its programs cannot run here.
    """
    for architecture, machine in recipe.MACHINES.items():
        if platform.system() == "Linux" and platform.machine() == machine:
            return architecture
    raise ImageError(
        f"images are built on Linux on {' or '.join(recipe.MACHINES.values())}, because their own "
        f"Python compiles their bytecode; this is {platform.system()} on {platform.machine()}"
    )


class Interpreter:
    """Debian's Python in a folder.

    Args:
        folder: an unpacked base layer for this machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        machine = recipe.MACHINES[host_architecture()]
        libraries = f"{folder}/usr/lib/{machine}-linux-gnu"
        loader = next((folder / "usr/lib" / f"{machine}-linux-gnu").glob("ld-linux*"))
        self._argv = [str(loader), "--library-path", libraries]
        self._argv += [f"{folder}/usr/bin/{recipe.PYTHON}", "-sSB"]

    def with_bytecode(self, layer: Tree) -> Tree:
        """Return a layer with all its modules' bytecode: a read-only container writes none."""
        sources = sorted(path for path in layer if path.endswith(".py"))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            tree.write_to(folder, {path: layer[path] for path in sources})
            argv = [*self._argv, "-c", _COMPILE, str(folder)]
            self._run(argv, "\n".join(sources).encode())
            compiled = {
                path.relative_to(folder).as_posix(): Entry(0o644, path.read_bytes())
                for path in folder.rglob("*.pyc")
            }
        return {**layer, **compiled}

    def compressed(self, data: bytes) -> bytes:
        """Return data as gzip."""
        return self._run([*self._argv, "-c", _COMPRESS], data)

    def _run(self, argv: list[str], data: bytes) -> bytes:
        # Not from this machine's PYTHON* variables; a fixed seed, as bytecode holds sets.
        environment = {
            "PYTHONHOME": f"{self._folder}/usr",
            "PYTHONHASHSEED": "0",
            "LC_ALL": "C.UTF-8",
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),  # noqa: S108 -- handed on
        }
        run = subprocess.run(argv, input=data, capture_output=True, env=environment, check=False)
        if run.returncode:
            last = (run.stderr.decode(errors="replace").strip() or "no output").splitlines()[-1]
            raise ImageError(f"the image's own Python fails on this machine: {last}")
        return run.stdout
