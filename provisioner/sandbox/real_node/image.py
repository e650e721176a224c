"""The images of a real node, from the machine's own static busybox: nothing is ever pulled.

An OCI image layout in a tar (OCI image specification v1.0, image-layout.md), which containerd
imports: one layer with /bin/busybox and a link for each of its applets, and two images of it that
differ in what they run.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
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

_COMMANDS: Final = {
    BUSYBOX: {"Cmd": ["sh"]},
    PAUSE: {"Entrypoint": ["/bin/sleep", "2147483647"]},
}
_FOLDERS: Final = {"bin": 0o755, "etc": 0o755, "proc": 0o555, "root": 0o700, "sys": 0o555}
_FILES: Final = {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n"}
_MEDIA: Final = "application/vnd.oci.image"


def write_from_here(tar: Path) -> Path:
    """Write the tar from this machine's own busybox.

    Raises:
        SandboxError: it has none.
    """
    busybox = shutil.which("busybox", path=PATH)
    if busybox is None:
        raise SandboxError("a real node needs busybox: apt install busybox-static")
    said = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    return write(tar, Path(busybox).read_bytes(), said.stdout.split())


def write(path: Path, busybox: bytes, applets: Sequence[str], machine: str = "") -> Path:
    """Write the tar; the same bytes for the same program.

    Args:
        path: of the tar.
        busybox: the program, linked statically.
        applets: its commands, each of which becomes a link in /bin.
        machine: as ``platform.machine()`` names it, which is the default.
    """
    machine = machine or platform.machine()
    where = {"architecture": ARCHITECTURES.get(machine, machine), "os": "linux"}
    layer = _layer(busybox, applets)
    packed = gzip.compress(layer, 1, mtime=0)
    blobs, manifests = [packed], []
    for name, command in _COMMANDS.items():
        config = _json(
            {
                **where,
                "config": {"Env": ["PATH=/bin"], **command},
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            }
        )
        manifest = _manifest(config, packed)
        blobs += [config, manifest]
        named = {"platform": where, "annotations": {"io.containerd.image.name": name}}
        manifests.append(_descriptor("manifest.v1+json", manifest) | named)
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": manifests}))
        for blob in blobs:
            _add(tar, f"blobs/{_digest(blob).replace(':', '/')}", blob)
    return path


def _manifest(config: bytes, packed: bytes) -> bytes:
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _descriptor("config.v1+json", config),
            "layers": [_descriptor("layer.v1.tar+gzip", packed)],
        }
    )


def _layer(busybox: bytes, applets: Sequence[str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, mode in {**_FOLDERS, "tmp": 0o1777}.items():
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            tar.addfile(folder)
        for name, text in _FILES.items():
            _add(tar, name, text.encode())
        _add(tar, "bin/busybox", busybox, 0o755)
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
    return packed.getvalue()


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
