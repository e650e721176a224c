"""The image's archive, as ``make image`` writes it: which one, and what is in it.

Source: opencontainers/image-spec v1.1, image-layout.md (a tar file of an image layout; its
index.json names manifests by digest and platform). The image's name is in the annotation that
containerd reads when it imports an archive (containerd 1.6, images/annotations.go).
"""

from __future__ import annotations

import json
import platform
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node.image import ARCHITECTURES

DIST: Final = Path(__file__).parents[3] / "dist"
"""Where ``make image`` writes it."""

_NAME: Final = "io.containerd.image.name"
_IMAGE: Final = re.compile(r"(?P<repository>[^@\s]+):(?P<tag>[\w.-]{1,128})")


@dataclass(frozen=True, slots=True)
class ImageArchive:
    """An archive with one image.

    Attributes:
        path: of the file.
        repository, tag: of the image, as the archive names it.
        digest: of its manifest.
        architecture: as the OCI names it, like amd64.
    """

    path: Path
    repository: str
    tag: str
    digest: str
    architecture: str

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
                f"{path} holds {len(manifests)} images, and one is expected: make image writes one "
                "for each architecture"
            )
        return _image(path, manifests[0])
    except OSError as problem:
        raise SandboxError(f"{path} cannot be read: {problem.strerror or problem}") from problem
    except (tarfile.TarError, ValueError, KeyError, TypeError, AssertionError) as problem:
        raise SandboxError(
            f"{path} is not an image's archive as make image writes it (an OCI image layout)"
        ) from problem


def _image(path: Path, manifest: dict[str, Any]) -> ImageArchive:
    named = _IMAGE.fullmatch(manifest["annotations"][_NAME])
    if named is None:
        raise ValueError("its image has no name with a tag")
    where = manifest["platform"]
    return ImageArchive(
        path, named["repository"], named["tag"], manifest["digest"], where["architecture"]
    )


def chosen(path: Path | None = None, folder: Path = DIST, machine: str = "") -> ImageArchive:
    """Return the image to install: that of a file, or the newest of this machine in a folder.

    Args:
        path: of the archive; by default the newest one.
        folder: where the newest is looked for.
        machine: as ``platform.machine()`` names it, which is the default.

    Raises:
        SandboxError: there is none, or it is for other machines.
    """
    wanted = ours(machine)
    found = [read(path)] if path else list(_newest_first(folder))
    fitting = [each for each in found if each.architecture == wanted]
    if fitting:
        return fitting[0]
    if not found:
        raise SandboxError(f"there is no image in {folder}: run make image, or name one by --image")
    other = found[0]
    raise SandboxError(
        f"{other.path} is an image for {other.architecture}, and this machine is {wanted}: run "
        f"make image ARCH={wanted}"
    )


def _newest_first(folder: Path) -> Iterator[ImageArchive]:
    for path in sorted(folder.glob("*.tar"), key=lambda each: each.stat().st_mtime, reverse=True):
        yield read(path)
