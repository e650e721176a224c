"""An image's archive, read as the OCI image layout says, with all digests checked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Opened:
    """What an archive holds."""

    files: dict[str, bytes]
    index: dict[str, Any]
    manifest: dict[str, Any]
    config: dict[str, Any]
    members: dict[str, tarfile.TarInfo]
    """All paths of all layers; what a higher one has hides what a lower one has."""
    contents: dict[str, bytes]
    """The content of each file."""

    @classmethod
    def of(cls, archive: bytes) -> Opened:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            files = {
                each.name: tar.extractfile(each).read()  # type: ignore[union-attr]
                for each in tar
                if each.isfile()
            }
        index = json.loads(files["index.json"])
        [listed] = index["manifests"]
        manifest = json.loads(blob(files, listed))
        config = json.loads(blob(files, manifest["config"]))
        members: dict[str, tarfile.TarInfo] = {}
        contents: dict[str, bytes] = {}
        for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            data = gzip.decompress(blob(files, layer))
            assert diff_id == f"sha256:{hashlib.sha256(data).hexdigest()}"
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                for each in tar:
                    members[each.name] = each
                    if each.isfile():
                        contents[each.name] = tar.extractfile(each).read()  # type: ignore[union-attr]
        return cls(files, index, manifest, config, members, contents)

    @property
    def programs(self) -> dict[str, str]:
        """Each program by its name, and the path of what is run; links are followed."""
        found = {}
        for path, member in self.members.items():
            folder, _, name = path.rpartition("/")
            if folder in {"usr/bin", "usr/sbin", "usr/local/bin"}:
                found[name] = f"{folder}/{member.linkname}" if member.issym() else path
        return found


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """Return a blob that is what its descriptor says."""
    kind, _, digest = descriptor["digest"].partition(":")
    data = files[f"blobs/{kind}/{digest}"]
    assert hashlib.sha256(data).hexdigest() == digest
    assert len(data) == descriptor["size"]
    return data
