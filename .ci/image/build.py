"""Puts an image together, layer by layer.

The highest layer is our own code, so a new version of it alone is a pull of 2 MiB. Each is kept in
the cache under the hash of all that decides about it.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from image import debian, fetch, oci, recipe, sbom, source, tree
from image.debian import Lock, Package
from image.errors import ImageError
from image.fetch import Say
from image.interpreter import Interpreter, host_architecture
from image.locking import WHEELS
from image.oci import Archive, Layer
from image.source import Source
from image.tree import Entry, Tree

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[1]
_EMPTY_FOLDERS: Final = ("dev", "proc", "sys", "run", "tmp", "root", "var/tmp")


@dataclass(frozen=True)
class Built:
    """The image and its lists of contents, as files of these names."""

    archive: Archive
    files: dict[str, bytes]


class Builder:
    """Builds images for any architecture on this machine.

    Args:
        cache: the per-user cache.
        say: is told each step.
    """

    def __init__(self, cache: Path, say: Say) -> None:
        self._cache, self._say = cache, say
        self._lock: Lock = debian.read_lock()
        self._interpreter = self._own_python()

    def build(self, architecture: str, what: Source) -> Built:
        """Build the image.

        Raises:
            ImageError: it cannot be built.
        """
        wheels = fetch.wheels(self._cache, WHEELS, architecture, self._say)
        own = source.ours(_ROOT, recipe.PROGRAMS)
        layers = [
            self._debian("Debian and Python", recipe.PYTHON_PACKAGES, architecture),
            self._debian("Debian's programs of disks", recipe.DISK_PACKAGES, architecture),
            self._debian("Debian's rsync", recipe.COPY_PACKAGES, architecture),
            self._wheels(wheels, architecture),
            self._kept("ebs-provisioner", architecture, [_digest(own)], lambda: own),
        ]
        archive = oci.archive(recipe.NAME, what.version, _settings(architecture, what), layers)
        packages = [self._lock.of(architecture, name) for name in recipe.PACKAGES]
        contents = [*sbom.of_debian(packages, architecture), *sbom.of_wheels(wheels)]
        stem = f"{recipe.NAME}-{what.version}-linux-{architecture}"
        files = {
            f"{stem}.spdx.json": sbom.spdx(recipe.NAME, archive.digest, what, contents),
            f"{stem}.cdx.json": sbom.cyclonedx(recipe.NAME, archive.digest, what, contents),
            f"{stem}.tar": archive.data,
        }
        return Built(archive, files)

    def _own_python(self) -> Interpreter:
        """Return the image's Python for this machine, unpacked once."""
        host = host_architecture()
        packages = [self._lock.of(host, name) for name in recipe.PYTHON_PACKAGES]
        folder = self._cache / "python" / _key(host, *(each.sha256 for each in packages))
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as name:
                tree.write_to(Path(name) / "root", self._unpacked(packages))
                try:
                    (Path(name) / "root").rename(folder)
                except OSError:  # another build was faster
                    if not folder.is_dir():
                        raise
        return Interpreter(folder)

    def _unpacked(self, packages: Sequence[Package]) -> Tree:
        found: Tree = {}
        for package in packages:
            deb = fetch.package(self._cache, self._lock, package, self._say)
            data = lzma.decompress(debian.member(deb, "data.tar.xz"))
            found.update(tree.from_tar(data, recipe.is_taken))
            # What scanners read of an image without dpkg.
            control = tree.from_tar(
                lzma.decompress(debian.member(deb, "control.tar.xz")), {"control"}.__contains__
            )
            found[f"var/lib/dpkg/status.d/{package.name}"] = control["control"]
        return found

    def _debian(self, what: str, names: Sequence[str], architecture: str) -> Layer:
        packages = [self._lock.of(architecture, name) for name in names]

        def files() -> Tree:
            found = self._unpacked(packages)
            if names is recipe.PYTHON_PACKAGES:
                links = recipe.links(architecture)
                found |= {path: Entry(0o777, target=to) for path, to in links.items()}
                found |= {path: Entry(0o644, text.encode()) for path, text in recipe.FILES.items()}
            kept = _EMPTY_FOLDERS if names is recipe.PYTHON_PACKAGES else ()
            return tree.without_empty_folders(found, kept)

        return self._kept(what, architecture, [each.sha256 for each in packages], files)

    def _wheels(self, wheels: Path, architecture: str) -> Layer:
        def files() -> Tree:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                fetch.unpack(wheels, WHEELS, architecture, folder)
                return tree.from_folder(folder, recipe.SITE, recipe.is_taken_of_wheels)

        return self._kept("Python packages", architecture, [WHEELS.read_text()], files)

    def _kept(
        self, what: str, architecture: str, inputs: Sequence[str], files: Callable[[], Tree]
    ) -> Layer:
        """Return a layer of the cache; make it first if it is not there."""
        code = [path.read_text() for path in sorted(_HERE.glob("*.py"))]
        python = [
            self._lock.of(host_architecture(), name).sha256 for name in recipe.PYTHON_PACKAGES
        ]
        kind = f"{architecture}-{_key(what)[:8]}-"
        path = self._cache / "layers" / f"{kind}{_key(*inputs, *code, *python)}"
        if path.exists():
            kept = read_layer(path, what)
            if kept is not None:
                return kept
            self._say(f"{path} is damaged, and made again")
        self._say(f"making the layer of {what} for {architecture}")
        data = tree.to_tar(self._interpreter.with_bytecode(files()))
        layer = Layer(self._interpreter.compressed(data), oci.digest_of(data), what)
        for older in path.parent.glob(f"{kind}*"):
            older.unlink(missing_ok=True)  # one that another checkout still wants is made again
        fetch.put(path, layer.data)
        return layer


def read_layer(path: Path, what: str) -> Layer | None:
    """Return a layer of the cache; None if it cannot be read as it was written."""
    try:
        data = path.read_bytes()
        content = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return None
    # Python takes nothing at all for compressed nothing.
    return Layer(data, oci.digest_of(content), what) if data else None


def _settings(architecture: str, what: Source) -> oci.Settings:
    prefix = "org.opencontainers.image"
    labels = {
        f"{prefix}.title": recipe.TITLE,
        f"{prefix}.version": what.version,
        f"{prefix}.revision": what.revision or "unknown",
        f"{prefix}.created": what.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        f"{prefix}.licenses": "Apache-2.0",
    }
    return oci.Settings(
        architecture=architecture,
        created=what.created,
        user=f"{recipe.USER}:{recipe.USER}",
        entrypoint=recipe.PROGRAMS[0],
        environment=[
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
            "LANG=C.UTF-8",
            "PYTHONDONTWRITEBYTECODE=1",
        ],
        labels=labels,
    )


def _digest(files: Tree) -> str:
    return oci.digest_of(tree.to_tar(files))


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def check_architecture(name: str) -> str:
    """Return the name of an architecture that is built.

    Raises:
        ImageError: it is none.
    """
    if name not in recipe.MACHINES:
        known = " and ".join(recipe.MACHINES)
        raise ImageError(f"there is no image for {name}: {known} are built")
    return name
