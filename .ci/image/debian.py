"""Debian's packages: which are locked, and what one holds.

Source: deb(5) and deb822(5) of dpkg 1.21; https://wiki.debian.org/DebianRepository/Format (read
2026-11-23).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from image.errors import ImageError

LOCK: Final = Path(__file__).with_name("debian.json")
_AR_MAGIC: Final = b"!<arch>\n"
_AR_HEADER: Final = 60


@dataclass(frozen=True)
class Package:
    """One package of one architecture, as its archive lists it."""

    name: str
    version: str
    source: str
    path: str
    """Below a mirror: ``debian/pool/main/…`` or ``debian-security/pool/…``."""
    sha256: str


@dataclass(frozen=True)
class Lock:
    """All packages of the images, by architecture and name."""

    snapshot: str
    """The time of locking, as Debian's archive of all versions writes it."""
    packages: Mapping[str, Mapping[str, Package]]

    def of(self, architecture: str, name: str) -> Package:
        """Return a package.

        Raises:
            ImageError: it is not locked.
        """
        try:
            return self.packages[architecture][name]
        except KeyError:
            raise ImageError(
                f"Debian package {name} is not locked for {architecture} in {LOCK.name}: "
                "run `make image-lock`, which needs apt"
            ) from None


def read_lock(path: Path = LOCK) -> Lock:
    """Read the lock."""
    content = json.loads(path.read_text())
    return Lock(
        content["snapshot"],
        {
            architecture: {each["name"]: Package(**each) for each in packages}
            for architecture, packages in content["packages"].items()
        },
    )


def write_lock(lock: Lock, path: Path = LOCK) -> None:
    """Write the lock, in an order that makes small differences."""
    packages = {
        architecture: [asdict(found[name]) for name in sorted(found)]
        for architecture, found in lock.packages.items()
    }
    content = {"snapshot": lock.snapshot, "packages": packages}
    path.write_text(json.dumps(content, indent=1) + "\n")


def members(deb: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each member of a package: control.tar.xz, data.tar.xz.

    Raises:
        ImageError: this is no package.
    """
    if not deb.startswith(_AR_MAGIC):
        raise ImageError("a Debian package has no `ar` header: it is damaged")
    at = len(_AR_MAGIC)
    while at + _AR_HEADER <= len(deb):
        name = deb[at : at + 16].decode().strip().rstrip("/")
        size = int(deb[at + 48 : at + 58])
        at += _AR_HEADER
        yield name, deb[at : at + size]
        at += size + size % 2


def member(deb: bytes, name: str) -> bytes:
    """Return one member by the beginning of its name."""
    return next(data for found, data in members(deb) if found.startswith(name))
