"""Find the sandbox's programs on this machine, or build them once.

A set that was found counts only when whole and of one Kubernetes minor that we support: a kubectl
alone, or an API server of another minor than its scheduler, proves nothing about either.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from provisioner.sandbox import build as building
from provisioner.sandbox.build import Maker, Progress
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.programs import (
    CONTROL_PLANE,
    DEFAULT_KUBERNETES,
    KUBERNETES_PROGRAMS,
    OF_NODE,
    RELEASES,
    SNAPSHOT_CRDS,
    demand_skew,
    minor_of,
    program,
    release,
)

KUBERNETES_VARIABLE = "SANDBOX_KUBERNETES"
KUBELET_VARIABLE = "SANDBOX_KUBELET"


def silent(_step: str, _done: float) -> None:
    """Show no progress."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the per-user cache, ``$XDG_CACHE_HOME/ebs-provisioner`` or below ``~/.cache``."""
    root = Path(environment.get("XDG_CACHE_HOME", ""))
    if not root.is_absolute():  # to be ignored, says the XDG Base Directory Specification
        root = Path(environment.get("HOME", "~")).expanduser() / ".cache"
    return root / "ebs-provisioner"


def ensure_binaries(
    kubernetes_version: str | None = None,
    progress: Progress = silent,
    *,
    programs: Sequence[str] = CONTROL_PLANE,
    environment: Mapping[str, str] | None = None,
    make: Maker | None = None,
) -> Path:
    """Return one folder that holds, or links to, all ``programs``; build what is missing.

    Args:
        kubernetes_version: like ``v1.35.4`` or ``1.35``; by default ``SANDBOX_KUBERNETES``, else
            any supported set that is found, else ``DEFAULT_KUBERNETES``. The kubelet and kube-proxy
            are of ``SANDBOX_KUBELET`` if that is set.
        progress: is told each step, see ``build.Progress``.
        programs: names of the table in ``programs.py``.
        environment: where to look (PATH, KUBEBUILDER_ASSETS, XDG_CACHE_HOME, SANDBOX_KUBERNETES,
            SANDBOX_KUBELET); the process's own by default.
        make: stands for the Go build in tests.

    Raises:
        SandboxError: they cannot be had; the text says what is missing, in one line.
    """
    environment = os.environ if environment is None else environment
    cache = cache_folder(environment)
    folders: dict[str, Path] = {}
    for version, names in _by_version(kubernetes_version, programs, environment).items():
        found = _find(version, names, environment)
        if found is None:
            found = cache / (version or DEFAULT_KUBERNETES)
            wanted = [program(name, found.name) for name in names]
            building.build(wanted, found, cache, progress, make)
        folders |= {name: found / name for name in names}
    return link(folders, cache)


def find_binaries(
    kubernetes_version: str | None = None,
    *,
    programs: Sequence[str] = CONTROL_PLANE,
    environment: Mapping[str, str] | None = None,
) -> Path | None:
    """Return the folder that ``ensure_binaries`` would; None if something has to be built first.

    Raises:
        SandboxError: this version is not supported.
    """
    environment = os.environ if environment is None else environment
    folders: dict[str, Path] = {}
    for version, names in _by_version(kubernetes_version, programs, environment).items():
        found = _find(version, names, environment)
        if found is None:
            return None
        folders |= {name: found / name for name in names}
    return link(folders, cache_folder(environment))


def _by_version(
    kubernetes_version: str | None, programs: Sequence[str], environment: Mapping[str, str]
) -> dict[str | None, Sequence[str]]:
    """The programs of each version of Kubernetes: one, or two if nodes are to have an older one."""
    text = kubernetes_version or environment.get(KUBERNETES_VARIABLE)
    version = release(text) if text else None
    of_nodes = environment.get(KUBELET_VARIABLE)
    if not of_nodes:
        return {version: programs}
    version, kubelet = version or DEFAULT_KUBERNETES, release(of_nodes)
    demand_skew(version, kubelet)
    parts: dict[str | None, Sequence[str]] = {version: programs}
    if kubelet != version:
        parts = {
            version: [name for name in programs if name not in OF_NODE],
            kubelet: [name for name in programs if name in OF_NODE],
        }
    return {key: names for key, names in parts.items() if names}


def _find(
    version: str | None, programs: Sequence[str], environment: Mapping[str, str]
) -> Path | None:
    cache = cache_folder(environment)
    found = find_set(programs, version, environment)
    if found is not None:
        return link(found, cache)
    folder = cache / (version or DEFAULT_KUBERNETES)
    wanted = [program(name, folder.name) for name in programs]
    return None if building.missing(folder, wanted) else folder


def find_set(
    programs: Sequence[str], kubernetes_version: str | None, environment: Mapping[str, str]
) -> dict[str, Path] | None:
    """Return where each program is if they are all there and their versions agree, else None."""
    path = environment.get("PATH", "")
    assets = environment.get("KUBEBUILDER_ASSETS")
    for search in [f"{assets}{os.pathsep}{path}", path] if assets else [path]:
        found = {name: shutil.which(name, _mode_of(name), search) for name in programs}
        whole = {name: Path(where) for name, where in found.items() if where is not None}
        if len(whole) == len(programs) and _agree(whole, kubernetes_version):
            return whole
    return None


def _mode_of(name: str) -> int:
    return os.F_OK if name == SNAPSHOT_CRDS else os.F_OK | os.X_OK


def _agree(found: Mapping[str, Path], wanted: str | None) -> bool:
    kubernetes = {name: where for name, where in found.items() if name in KUBERNETES_PROGRAMS}
    versions = {version_of(name, where) for name, where in kubernetes.items()}
    if None in versions:
        return False
    if wanted is not None:
        return versions == {wanted}
    minors = {minor_of(version) for version in versions if version is not None}
    return len(minors) == 1 and minors <= set(RELEASES)


def version_of(name: str, where: Path) -> str | None:
    """Ask a Kubernetes program for its release, like ``v1.36.3``; None if it does not say."""
    question = ["version", "--client", "--output=json"] if name == "kubectl" else ["--version"]
    try:
        answer = subprocess.run(
            [where, *question], capture_output=True, text=True, check=True, timeout=20
        ).stdout
        text = json.loads(answer)["clientVersion"]["gitVersion"] if name == "kubectl" else answer
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None
    match = re.search(r"v1\.\d+\.\d+", str(text))
    return match.group() if match else None


def link(found: Mapping[str, Path], cache: Path) -> Path:
    """Return a folder with one link a program, the same one for the same set."""
    if len({where.parent for where in found.values()}) == 1:
        return next(iter(found.values())).parent
    key = hashlib.sha256("\n".join(f"{n}={found[n]}" for n in sorted(found)).encode())
    folder = cache / f"found-{key.hexdigest()[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, where in found.items():
            if not (folder / name).exists():
                fresh = folder / f".{name}.{os.getpid()}"
                fresh.symlink_to(where.absolute())
                fresh.replace(folder / name)
    except OSError as problem:
        raise SandboxError(f"the cache {cache} cannot be written: {problem.strerror}") from problem
    return folder
