"""What is built: the checkout's version and commit, and our own wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from image import recipe
from image.errors import ImageError
from image.tree import Entry, Tree

# What decides about an image; other changes of a checkout do not make it another one.
_INPUTS: Final = (
    *("pyproject.toml", "README.md", "LICENSE", "constraints.txt"),
    *("provisioner", "webhook", ".ci/image"),
)
_NOT_TAKEN: Final = "provisioner/sandbox/"


@dataclass(frozen=True)
class Source:
    """A checkout."""

    version: str
    """What the image is labelled with, and tagged when it is imported."""
    revision: str
    created: datetime


def describe(root: Path) -> Source:
    """Describe a checkout.

    A release is a commit with its tag, ``v`` and the version. Anything else has the commit in its
    version, and ``-dirty`` if it has changes that are not committed. SOURCE_DATE_EPOCH stands for
    the commit's time.

    Raises:
        ImageError: git cannot read the checkout, or SOURCE_DATE_EPOCH is no time.
    """
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    revision = _git(root, "rev-parse", "HEAD")
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "log", "-1", "--format=%ct") or "0"
    is_dirty = bool(_git(root, "status", "--porcelain", "--", *_INPUTS))
    is_release = f"v{version}" in _git(root, "tag", "--points-at", "HEAD").splitlines()
    if revision and (is_dirty or not is_release):
        version = f"{version}-g{revision[:12]}"
    if is_dirty:
        version, revision = f"{version}-dirty", f"{revision}-dirty"
    try:
        created = datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        raise ImageError(f"SOURCE_DATE_EPOCH is {seconds!r}, and no number of seconds") from None
    return Source(version, revision, created)


def _git(root: Path, *argv: str) -> str:
    """Return git's answer; nothing if this is no checkout, such as an unpacked release.

    Raises:
        ImageError: this is a checkout, and git is missing or refuses it, as one of another user's.
            It would pass for a release.
    """
    try:
        run = subprocess.run(
            ["git", "-C", str(root), *argv], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        failure = "git is not installed"
    else:
        if run.returncode == 0:
            return run.stdout.strip()
        failure = (run.stderr.strip() or f"git {argv[0]} fails").splitlines()[0]
    if (root / ".git").exists():
        raise ImageError(
            f"git cannot say which commit this is, so the image has no version: {failure}"
        )
    return ""


def ours(root: Path, programs: tuple[str, ...]) -> Tree:
    """Build our wheel and return what an image has of it, and the scripts that start the programs.

    Raises:
        ImageError: hatchling fails.
    """
    found: Tree = {}
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", folder],
            cwd=root,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1577836800"},
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            last = (run.stderr.strip() or "no output").splitlines()[-1]
            raise ImageError(f"our wheel cannot be built: {last}")
        [wheel] = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not name.startswith(_NOT_TAKEN) and not name.endswith(".dist-info/RECORD"):
                    found[f"{recipe.SITE}/{name}"] = Entry(0o644, archive.read(name))
    for program in programs:
        found[f"usr/local/bin/{program}"] = Entry(0o755, recipe.launcher(program))
    return found
