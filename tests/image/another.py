"""Another build of an image: the same layers, and another version in its labels and its name."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

_VERSION = "org.opencontainers.image.version"


def another(archive: Path, version: str, into: Path) -> Path:
    """Write the archive of an image that differs in its version; its digest does too."""
    with tarfile.open(archive) as tar:
        files = {
            each.name: file.read() for each in tar if (file := tar.extractfile(each)) is not None
        }
    index = json.loads(files["index.json"])
    [listed] = index["manifests"]
    manifest = json.loads(files.pop(_path(listed["digest"])))
    config = json.loads(files.pop(_path(manifest["config"]["digest"])))
    for labels in (config["config"]["Labels"], manifest["annotations"]):
        labels[_VERSION] = version
    files |= _put(manifest["config"], config)
    files |= _put(listed, manifest)
    name, _, _ = listed["annotations"]["io.containerd.image.name"].rpartition(":")
    listed["annotations"] = {
        "io.containerd.image.name": f"{name}:{version}",
        "org.opencontainers.image.ref.name": version,
    }
    files["index.json"] = _json(index)
    del files["manifest.json"]  # Docker's
    with tarfile.open(into, "w") as tar:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return into


def _put(descriptor: dict[str, Any], content: object) -> dict[str, bytes]:
    """Have a descriptor name this content; the file that it names then."""
    data = _json(content)
    descriptor |= {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}
    return {_path(descriptor["digest"]): data}


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(content: object) -> bytes:
    return json.dumps(content).encode()
