"""``make image`` and ``make image-lock``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Final

from image import fetch, locking, recipe, source
from image.build import Builder, check_architecture
from image.errors import ImageError
from image.interpreter import host_architecture
from provisioner.sandbox.binaries import cache_folder

_ROOT: Final = Path(__file__).resolve().parents[2]
_MIB: Final = 1024 * 1024
_OF_A_COMMIT: Final = re.compile(rf"{recipe.NAME}-[\d.]+-g[0-9a-f]{{12}}(-dirty)?-linux-")


def main(argv: list[str] | None = None) -> int:
    """Build images, or lock what they are built of; return the exit code."""
    parser = argparse.ArgumentParser(prog="image", description=__doc__)
    parser.add_argument(
        "--arch", action="append", metavar="ARCH", help="amd64 or arm64 [default: this machine's]"
    )
    parser.add_argument("--into", type=Path, default=_ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--lock", action="store_true", help="lock what is newest today")
    options = parser.parse_args(argv)
    try:
        if options.lock:
            _lock()
        else:
            _build(options.arch or [host_architecture()], options.into)
    except (ImageError, OSError) as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    return 0


def _lock() -> None:
    lock = locking.lock_debian()
    locking.lock_wheels()
    count = sum(len(each) for each in lock.packages.values())
    print(f"locked {count} Debian packages of {lock.snapshot}, and the wheels of constraints.txt")


def _build(architectures: list[str], into: Path) -> None:
    wanted = [check_architecture(each) for each in architectures]
    what = source.describe(_ROOT)
    builder = Builder(cache_folder(os.environ) / "image", lambda step: print(step, flush=True))
    for architecture in wanted:
        built = builder.build(architecture, what)
        for name, data in built.files.items():
            fetch.put(into / name, data)
        # The archive is written last: where it is, its lists are too.
        archive = into / [*built.files][-1]
        _tidy(into, architecture, set(built.files))
        size = len(built.archive.data) / _MIB
        print(f"{recipe.NAME}:{what.version} {built.archive.digest}\n{archive} ({size:.1f} MiB)")


def _tidy(into: Path, architecture: str, kept: set[str]) -> None:
    """Remove what builds of other commits have left; releases stay."""
    for path in into.glob(f"{recipe.NAME}-*-linux-{architecture}.*"):
        if path.name not in kept and _OF_A_COMMIT.match(path.name):
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
