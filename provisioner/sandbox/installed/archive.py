"""The image's archive, as ``make image`` writes it: which one, and what is in it.

Source: opencontainers/image-spec v1.1, image-layout.md (a tar file of an image layout; its
index.json names manifests by digest and platform). The image's name is in the annotation that
containerd reads when it imports an archive (containerd 1.6, images/annotations.go).
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node.image import ARCHITECTURES

CHECKOUT: Final = Path(__file__).parents[3]
DIST: Final = CHECKOUT / "dist"
"""Where ``make image`` writes it."""

_NAME: Final = "io.containerd.image.name"
_REVISION: Final = "org.opencontainers.image.revision"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(-dirty)?")
_IMAGE: Final = re.compile(r"(?P<repository>[^@\s]+):(?P<tag>[\w.-]{1,128})")


@dataclass(frozen=True, slots=True)
class ImageArchive:
    """An archive with one image.

    Attributes:
        path: of the file.
        repository, tag: of the image, as the archive names it.
        digest: of its manifest.
        architecture: as the OCI names it, like amd64.
        revision: the commit that it was built from, and ``-dirty`` if that had changes; "" if the
            archive does not say.
    """

    path: Path
    repository: str
    tag: str
    digest: str
    architecture: str
    revision: str = ""

    @property
    def name(self) -> str:
        """Return the name that containerd gives to the image."""
        return f"{self.repository}:{self.tag}"


def ours(machine: str = "") -> str:
    """Return the architecture of a machine, by default this one, as the OCI names it."""
    machine = machine or platform.machine()
    return ARCHITECTURES.get(machine, machine)


def read(path: Path) -> ImageArchive:
    """Read which image an archive holds.

    Raises:
        SandboxError: it cannot be read, or does not hold one image with a name.
    """
    try:
        with tarfile.open(path) as tar:
            index = tar.extractfile("index.json")
            assert index is not None, "index.json is no file"
            manifests = json.load(index)["manifests"]
            if len(manifests) != 1:
                raise SandboxError(
                    f"{path} holds {len(manifests)} images, and one is expected: make image writes "
                    "one for each architecture"
                )
            return _image(path, manifests[0], _revision(tar, manifests[0]["digest"]))
    except OSError as problem:
        raise SandboxError(f"{path} cannot be read: {problem.strerror or problem}") from problem
    except (
        tarfile.TarError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        AssertionError,
    ) as problem:
        raise SandboxError(
            f"{path} is not an image's archive as make image writes it (an OCI image layout)"
        ) from problem


def _revision(tar: tarfile.TarFile, digest: str) -> str:
    name = f"blobs/{digest.replace(':', '/')}"
    if name not in tar.getnames() or (file := tar.extractfile(name)) is None:
        return ""
    revision = str(json.load(file).get("annotations", {}).get(_REVISION, ""))
    return revision if _COMMIT.fullmatch(revision) else ""


def _image(path: Path, manifest: dict[str, Any], revision: str) -> ImageArchive:
    named = _IMAGE.fullmatch(manifest["annotations"][_NAME])
    if named is None:
        raise ValueError("its image has no name with a tag")
    where = manifest["platform"]
    return ImageArchive(
        *(path, named["repository"], named["tag"], manifest["digest"], where["architecture"]),
        revision=revision,
    )


def why_other(image: ImageArchive, checkout: Path = CHECKOUT) -> str:
    """Return why an image is not of this checkout's commit, in a clause; "" if it is.

    An image of changes that were not committed is of no commit. Changes that the checkout has now
    are not looked for. Where the image or git does not say which commit, the answer is "".
    """
    commit = _commit_of(checkout)
    if not commit or image.revision in {"", commit}:
        return ""
    built_from, _, dirty = image.revision.partition("-")
    if dirty:
        return (
            f"{image.path} has changes of {built_from[:12]} that were not committed: commit them, "
            "then run make image"
        )
    return (
        f"{image.path} is of another commit ({built_from[:12]}, and this checkout is at "
        f"{commit[:12]}): run make image"
    )


def _commit_of(checkout: Path) -> str:
    if not (checkout / ".git").exists():
        return ""  # else git would answer for a repository around it
    try:
        run = subprocess.run(
            ("git", "-C", str(checkout), "rev-parse", "HEAD"),
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def chosen(path: Path | None = None, folder: Path = DIST, machine: str = "") -> ImageArchive:
    """Return the image to install: that of a file, or the newest of this machine in a folder.

    Args:
        path: of the archive; by default the newest one.
        folder: where the newest is looked for.
        machine: as ``platform.machine()`` names it, which is the default.

    An archive of the folder that cannot be read is passed over: it hides no good one.

    Raises:
        SandboxError: there is none, or it is for other machines.
    """
    wanted = ours(machine)
    found, broken = ([read(path)], []) if path else _newest_first(folder)
    fitting = [each for each in found if each.architecture == wanted]
    if fitting:
        return fitting[0]
    if not found and broken:
        raise broken[0]
    if not found:
        raise SandboxError(f"there is no image in {folder}: run make image, or name one by --image")
    other = found[0]
    raise SandboxError(
        f"{other.path} is an image for {other.architecture}, and this machine is {wanted}: run "
        f"make image ARCH={wanted}"
    )


def _newest_first(folder: Path) -> tuple[list[ImageArchive], list[SandboxError]]:
    """The archives of a folder, and why others are none."""
    found, broken = [], []
    for path in sorted(folder.glob("*.tar"), key=_written_s, reverse=True):
        try:
            found.append(read(path))
        except SandboxError as error:
            broken.append(error)
    return found, broken


def _written_s(path: Path) -> float:
    """When; 0 for what is gone meanwhile, or leads nowhere, and cannot be read either."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
