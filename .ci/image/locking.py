"""Writes the locks afresh, with what Debian and Python's registry have today: ``make image-lock``.

apt chooses the newest version of each package, and checks its archive's signature on the way to
the package's hash. uv chooses the wheels, by ``constraints.txt``, and writes down the hash of each
platform's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from image import fetch, recipe
from image.debian import Lock, Package, write_lock
from image.errors import ImageError

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[1]
WHEELS: Final = _HERE / "wheels.txt"
"""The wheels of the image, each with its hashes for all platforms."""
_UV: Final = "uv==0.13.9"
_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"


def lock_debian() -> Lock:
    """Resolve all packages for all architectures and write the lock.

    Raises:
        ImageError: there is no apt, or it fails.
    """
    if shutil.which("apt-get") is None or not Path(_KEYRING).exists():
        raise ImageError(f"locking needs Debian's apt and {_KEYRING} (debian-archive-keyring)")
    names = sorted(recipe.PACKAGES)
    found = {}
    for architecture in recipe.MACHINES:
        with tempfile.TemporaryDirectory() as folder:
            packages = _resolve(Path(folder), architecture, names)
            found[architecture] = {package.name: package for package in packages}
    lock = Lock(datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"), found)
    write_lock(lock)
    return lock


def _resolve(folder: Path, architecture: str, names: Sequence[str]) -> Iterator[Package]:
    options = _private(folder, architecture)
    _run("apt-get", *options, "--quiet", "update")
    uris = _run("apt-get", *options, "download", "--print-uris", *names)
    shown = _run("apt-cache", *options, "show", "--no-all-versions", *names)
    sources = dict(_sources(shown))
    for line in uris.splitlines():
        uri, file, _, digest = line.split()
        name, version, _ = file.split("_")
        path = unquote(urlsplit(uri.strip("'")).path).lstrip("/")
        kind, _, sha256 = digest.partition(":")
        if kind != "SHA256":
            raise ImageError(f"apt gives {kind} of {name}, and SHA256 is needed")
        yield Package(name, unquote(version), sources.get(name, name), path, sha256)


def _sources(shown: str) -> Iterator[tuple[str, str]]:
    """Yield package and source package of apt-cache's records."""
    for record in shown.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in record.splitlines() if ": " in line)
        if "Source" in fields:
            yield fields["Package"], fields["Source"].partition(" ")[0]


def _private(folder: Path, architecture: str) -> list[str]:
    """Return the options by which apt sees nothing of this machine's packages and settings."""
    for each in ("lists/partial", "archives/partial", "etc"):
        (folder / each).mkdir(parents=True)
    (folder / "status").touch()
    signed = f"deb [signed-by={_KEYRING}]"
    mirror, security = fetch.site("debian"), fetch.site("debian-security")
    (folder / "etc/sources.list").write_text(
        f"{signed} {mirror} {recipe.SUITE} main\n"
        f"{signed} {mirror} {recipe.SUITE}-updates main\n"
        f"{signed} {security} {recipe.SUITE}-security main\n"
    )
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "",
        "Acquire::ForceHash": "SHA256",
        "Acquire::Languages": "none",
        "Dir::Cache": folder,
        "Dir::Etc::sourcelist": folder / "etc/sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State": folder,
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
    }
    return [f"--option={name}={value}" for name, value in settings.items()]


def lock_wheels() -> None:
    """Write the file of hash-locked wheels.

    Raises:
        ImageError: pip or uv fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, _UV)
        _run(
            *(f"{folder}/bin/uv", "pip", "compile", "--quiet", str(_ROOT / "pyproject.toml")),
            *("--extra", "node", "--constraint", str(_ROOT / "constraints.txt")),
            *("--python-version", recipe.PYTHON_VERSION, "--python-platform", "linux"),
            *("--generate-hashes", "--no-header", "--no-annotate"),
            *("--output-file", str(WHEELS)),
        )


def _run(*argv: str) -> str:
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    if run.returncode:
        last = (run.stderr.strip() or "no output").splitlines()[-1]
        raise ImageError(f"{Path(argv[0]).name} fails: {last}")
    return run.stdout
