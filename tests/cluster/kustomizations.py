"""Kustomizations as kubectl renders them, the manifests' own and a user's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.up import Sandbox

Json = dict[str, Any]


async def rendered(sandbox: Sandbox, folder: Path) -> list[Json]:
    """All objects of a kustomization."""
    text = await kubectl(sandbox.plane, "kustomize", str(folder))
    return [each for each in yaml.safe_load_all(text) if each]


def mine(tmp_path: Path, **kustomization: Any) -> Path:
    """A kustomization of one's own; kustomize takes folders by relative names only."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for key in ("resources", "components"):
        names = kustomization.pop(key, [])
        kustomization[key] = [os.path.relpath(MANIFESTS / name, folder) for name in names]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return folder
