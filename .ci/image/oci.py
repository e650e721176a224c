"""An image as one archive that containerd, skopeo and Docker read.

It is an OCI image layout in a tar file, with the ``manifest.json`` of ``docker save`` beside it,
which names the same blobs: Docker writes both since version 25, and older ones read the latter.

Source: opencontainers/image-spec v1.1 (image-layout.md, config.md, annotations.md, descriptor.md);
moby v25 image/tarexport/save.go and load.go (read 2026-11-23).
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from image.tree import MTIME

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Layer:
    """A compressed layer, the digest of its uncompressed tar archive, and what it is."""

    data: bytes
    diff_id: str
    what: str


@dataclass(frozen=True)
class Settings:
    """What a container is started with."""

    architecture: str
    created: datetime
    user: str
    entrypoint: str
    environment: Sequence[str]
    labels: dict[str, str]


@dataclass(frozen=True)
class Archive:
    """An image's file and the digest of its manifest, by which it can be pulled."""

    data: bytes
    digest: str


def digest_of(data: bytes) -> str:
    """Return a digest as OCI writes it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def config_of(settings: Settings, layers: Sequence[Layer]) -> bytes:
    """Return the configuration of an image."""
    created = settings.created.strftime("%Y-%m-%dT%H:%M:%SZ")
    return _json(
        {
            "architecture": settings.architecture,
            "os": "linux",
            "created": created,
            "config": {
                "User": settings.user,
                "Env": list(settings.environment),
                "Entrypoint": [settings.entrypoint],
                "WorkingDir": "/",
                "Labels": settings.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": created, "created_by": layer.what} for layer in layers],
        }
    )


def archive(name: str, version: str, settings: Settings, layers: Sequence[Layer]) -> Archive:
    """Return an image's archive.

    Args:
        name: of the image, without a registry.
        version: its tag.
        settings: what a container is started with.
        layers: the lowest first.
    """
    config = config_of(settings, layers)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(_LAYER, layer.data) for layer in layers],
            "annotations": settings.labels,
        }
    )
    names = {
        # containerd reads the first, others the second.
        "io.containerd.image.name": f"docker.io/library/{name}:{version}",
        "org.opencontainers.image.ref.name": version,
    }
    platform = {"architecture": settings.architecture, "os": "linux"}
    listed = {**_descriptor(_MANIFEST, manifest), "platform": platform, "annotations": names}
    blobs = [config, manifest, *(layer.data for layer in layers)]
    docker = {
        "Config": _path(config),
        "RepoTags": [f"{name}:{version}"],
        "Layers": [_path(layer.data) for layer in layers],
    }
    files = {
        **{_path(blob): blob for blob in blobs},
        "index.json": _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [listed]}),
        "manifest.json": _json([docker]),
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
    }
    return Archive(_tar(files), digest_of(manifest))


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_of(data), "size": len(data)}


def _path(blob: bytes) -> str:
    return f"blobs/{digest_of(blob).replace(':', '/')}"


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as made:
        for path in ("blobs", "blobs/sha256"):
            folder = tarfile.TarInfo(path)
            folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, MTIME
            made.addfile(folder)
        for path, data in sorted(files.items()):
            info = tarfile.TarInfo(path)
            info.size, info.mode, info.mtime = len(data), 0o644, MTIME
            made.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
