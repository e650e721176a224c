"""Brings the locked packages and wheels into the per-user cache, each checked against its hash."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Final

from image import recipe
from image.debian import Lock, Package
from image.errors import ImageError, NotAvailableError

_MIRROR: Final = "DEBIAN_MIRROR"
_ARCHIVE: Final = "DEBIAN_ARCHIVE"
_PATIENCE_S: Final = 60

Say = Callable[[str], None]


def package(cache: Path, lock: Lock, wanted: Package, say: Say) -> bytes:
    """Return a Debian package.

    A mirror keeps the newest versions, so an older one comes from Debian's archive of all versions.
    The variable DEBIAN_ARCHIVE has its URL, below which are "debian/TIME" and
    "debian-security/TIME".

    Raises:
        NotAvailableError: it is neither cached nor to be fetched.
    """
    kept = cache / "debian" / wanted.sha256
    if kept.exists():
        data = kept.read_bytes()
        if hashlib.sha256(data).hexdigest() == wanted.sha256:
            return data
    failures = []
    for url in _urls(lock, wanted):
        try:
            data = _get(url.replace("+", "%2b"))
        except (OSError, HTTPException, ValueError) as error:
            # A reply that ends halfway is no OSError, and ValueError says that the URL is none.
            failures.append(f"{url}: {error}")
            continue
        if hashlib.sha256(data).hexdigest() == wanted.sha256:
            say(f"fetched {wanted.name} {wanted.version}")
            put(kept, data)
            return data
        failures.append(f"{url}: its hash is not the locked one")
    raise NotAvailableError(
        f"cannot fetch Debian package {wanted.name} {wanted.version} ({'; '.join(failures)}): "
        f"check the network, name another mirror in {_MIRROR}, or Debian's archive of all versions "
        f"in {_ARCHIVE}; `make image-lock` locks the versions of today"
    )


def site(suite: str) -> str:
    """The URL of a mirror of "debian" or "debian-security": below DEBIAN_MIRROR, or apt's own.

    Raises:
        NotAvailableError: neither names one.
    """
    named = os.environ.get(_MIRROR)
    if named:
        return f"{named.rstrip('/')}/{suite}"
    apt = ["apt-get", "indextargets", "--format", "$(SITE)"]
    with contextlib.suppress(OSError):
        run = subprocess.run(apt, capture_output=True, text=True, check=False)
        for found in run.stdout.split():
            if found.rstrip("/").endswith(f"/{suite}"):
                return found.rstrip("/")
    raise NotAvailableError(
        f"this machine's apt names no mirror of {suite}: name one in {_MIRROR}, the URL below "
        "which debian/ and debian-security/ are"
    )


def _urls(lock: Lock, wanted: Package) -> list[str]:
    suite, _, below = wanted.path.partition("/")
    urls = [f"{site(suite)}/{below}"]
    archive = os.environ.get(_ARCHIVE)
    if archive:
        urls.append(f"{archive.rstrip('/')}/{suite}/{lock.snapshot}/{below}")
    return urls


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_PATIENCE_S) as reply:  # noqa: S310 -- ours, and hashed
        data: bytes = reply.read()
    return data


def wheels(cache: Path, requirements: Path, architecture: str, say: Say) -> Path:
    """Return a folder with all wheels of a file of requirements, for one architecture.

    Raises:
        ImageError: pip cannot have one of them, or its hash is not locked.
    """
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    kept = cache / "wheels" / f"{requirements.stem}-{architecture}-{digest}"
    if kept.is_dir():
        if _are_locked(kept, requirements):
            return kept
        say(f"{kept} is damaged, and fetched again")
        shutil.rmtree(kept)
    say(f"fetching the wheels of {requirements.name} for {architecture}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        found = Path(folder) / "found"
        pip("download", *_choice(requirements, architecture), f"--dest={found}")
        try:
            found.rename(kept)
        except OSError:  # another build was faster
            if not kept.is_dir():
                raise
    return kept


def _are_locked(wheels: Path, requirements: Path) -> bool:
    locked = requirements.read_text()
    found = [hashlib.sha256(each.read_bytes()).hexdigest() for each in wheels.glob("*.whl")]
    return bool(found) and all(f"sha256:{each}" in locked for each in found)


def unpack(wheels: Path, requirements: Path, architecture: str, folder: Path) -> None:
    """Install wheels into a folder, without network.

    Raises:
        ImageError: a wheel's hash is not locked.
    """
    offline = ("--no-index", f"--find-links={wheels}", "--no-compile", f"--target={folder}")
    pip("install", *_choice(requirements, architecture), *offline)


def _choice(requirements: Path, architecture: str) -> list[str]:
    machine = recipe.MACHINES[architecture]
    return [
        *("--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"),
        *("--only-binary=:all:", f"--requirement={requirements}"),
        *("--implementation=cp", f"--python-version={recipe.PYTHON_VERSION}"),
        *(f"--platform={each}_{machine}" for each in recipe.MANYLINUX),
    ]


def pip(*argv: str) -> None:
    """Run pip.

    Raises:
        ImageError: it fails; its last words.
    """
    run = subprocess.run(
        [sys.executable, "-m", "pip", *argv], capture_output=True, text=True, check=False
    )
    if run.returncode:
        errors = [line for line in run.stderr.splitlines() if line.startswith("ERROR")]
        why = (errors or run.stderr.strip().splitlines() or ["no output"])[-1]
        raise ImageError(f"pip {argv[0]} fails: {why.removeprefix('ERROR: ')}")


def put(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)  # noqa: PTH101 -- it has no Path
            os.replace(file.name, path)  # noqa: PTH105 -- the same
        except BaseException:
            os.unlink(file.name)  # noqa: PTH108 -- the same
            raise
