"""The images of a real node, from the machine's own programs: nothing is ever pulled.

An OCI image layout in a tar (OCI image specification v1.0, image-layout.md), which containerd
imports. The two that every node has are one layer with /bin/busybox and a link for each of its
applets, and differ in what they run; others may add layers to it. Layers are not compressed, as
they do not travel.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node.requirements import PATH

BUSYBOX: Final = "docker.io/library/busybox:1"
"""The name in full of what pods may run."""

POD_IMAGE: Final = "busybox:1"
"""How pods name it. ("busybox" alone means the latest, for which a kubelet asks the registry.)"""

PAUSE: Final = "docker.io/library/pause:1"
"""What holds a pod's namespaces: it sleeps."""

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""As the OCI names what the kernel calls its machine."""

_FOLDERS: Final = {"bin": 0o755, "etc": 0o755, "proc": 0o555, "root": 0o700, "sys": 0o555}
_FILES: Final = {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n"}
_MEDIA: Final = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Image:
    """One image.

    Attributes:
        name: in full, with its registry and tag.
        runs: what a container of it runs: "Entrypoint" and "Cmd" of its configuration.
        layers: tars, the lowest one first.
    """

    name: str
    runs: Mapping[str, Sequence[str]]
    layers: Sequence[bytes]


def write_from_here(tar: Path) -> Path:
    """Write the tar of the images that every node has, from this machine's own busybox.

    Raises:
        SandboxError: it has none.
    """
    return write(tar, images_of(base_from_here()))


def images_of(base: bytes) -> list[Image]:
    """Return the images that every node has; their layer is ``base``."""
    return [
        Image(BUSYBOX, {"Cmd": ["sh"]}, [base]),
        Image(PAUSE, {"Entrypoint": ["/bin/sleep", "2147483647"]}, [base]),
    ]


def base_from_here() -> bytes:
    """Return the layer of this machine's own busybox.

    Raises:
        SandboxError: it has none.
    """
    busybox = shutil.which("busybox", path=PATH)
    if busybox is None:
        raise SandboxError("a real node needs busybox: apt install busybox-static")
    said = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    return base(Path(busybox).read_bytes(), said.stdout.split())


def base(busybox: bytes, applets: Sequence[str]) -> bytes:
    """Return a layer: the usual folders, and in /bin a link for each applet.

    Args:
        busybox: the program, linked statically.
        applets: its commands.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, mode in {**_FOLDERS, "tmp": 0o1777}.items():
            _add_folder(tar, name, mode)
        for name, text in _FILES.items():
            _add(tar, name, text.encode())
        _add(tar, "bin/busybox", busybox, 0o755)
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
    return packed.getvalue()


def programs(contents: Mapping[str, bytes]) -> bytes:
    """Return a layer that adds programs, or the libraries that they need, by their full paths."""
    paths = {path.strip("/"): content for path, content in contents.items()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        above = {str(folder) for path in paths for folder in Path(path).parents} - {"."}
        for folder in sorted(above - _FOLDERS.keys()):
            _add_folder(tar, folder, 0o755)
        for path, content in sorted(paths.items()):
            _add(tar, path, content, 0o755)
    return packed.getvalue()


def write(path: Path, images: Sequence[Image], machine: str = "") -> Path:
    """Write the tar; the same bytes for the same images.

    Args:
        path: of the tar.
        images: what is in it; a layer that several have is there once.
        machine: as ``platform.machine()`` names it, which is the default.
    """
    machine = machine or platform.machine()
    where = {"architecture": ARCHITECTURES.get(machine, machine), "os": "linux"}
    blobs: dict[str, bytes] = {}
    manifests = []
    for image in images:
        config = _json(
            {
                **where,
                "config": {"Env": ["PATH=/bin"], **image.runs},
                "rootfs": {"type": "layers", "diff_ids": [_digest(each) for each in image.layers]},
            }
        )
        manifest = _manifest(config, image.layers)
        blobs |= {_digest(each): each for each in (*image.layers, config, manifest)}
        named = {"platform": where, "annotations": {"io.containerd.image.name": image.name}}
        manifests.append(_descriptor("manifest.v1+json", manifest) | named)
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": manifests}))
        for digest, blob in blobs.items():
            _add(tar, f"blobs/{digest.replace(':', '/')}", blob)
    return path


def _manifest(config: bytes, layers: Sequence[bytes]) -> bytes:
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _descriptor("config.v1+json", config),
            "layers": [_descriptor("layer.v1.tar", each) for each in layers],
        }
    )


def _add_folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    folder = tarfile.TarInfo(name)
    folder.type, folder.mode = tarfile.DIRTYPE, mode
    tar.addfile(folder)


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
