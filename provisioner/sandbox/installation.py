"""Install the controller into the sandbox as its manifests say, and find out who it is there.

All of ``manifests/`` is applied but the Deployment: KWOK would only pretend to run its pods. The
controller runs as a process instead, with a token of the very ServiceAccount that the Deployment
names, so a right that its RBAC lacks is missing here too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.errors import SandboxError

MANIFESTS = Path(__file__).parents[2] / "manifests"

KUBECTL_TIMEOUT_S = 60.0

_WORKLOADS = ("Deployment", "DaemonSet", "PodDisruptionBudget")


@dataclass(frozen=True, slots=True)
class Account:
    """The ServiceAccount that the controller runs as."""

    namespace: str
    name: str


def split(rendered: str) -> tuple[Account, list[dict[str, Any]]]:
    """Return the account that the Deployment names, and all objects that are not workloads.

    Raises:
        SandboxError: there is no Deployment.
    """
    objects = [each for each in yaml.safe_load_all(rendered) if each]
    deployments = [each for each in objects if each["kind"] == "Deployment"]
    if not deployments:
        raise SandboxError("the manifests hold no Deployment that names a ServiceAccount")
    first = deployments[0]
    account = Account(
        first["metadata"]["namespace"], first["spec"]["template"]["spec"]["serviceAccountName"]
    )
    return account, [each for each in objects if each["kind"] not in _WORKLOADS]


async def install(plane: ControlPlane, manifests: Path = MANIFESTS) -> Account:
    """Apply the manifests without their workloads and return the controller's account.

    Raises:
        SandboxError: they are missing, or the API server refuses one.
    """
    if not (manifests / "kustomization.yaml").exists():
        raise SandboxError(f"{manifests} holds no kustomization.yaml: run from a checkout")
    rendered = await kubectl(plane, "kustomize", str(manifests))
    account, objects = split(rendered)
    # Namespaces first: a server-side apply of what is in them fails without.
    objects.sort(key=lambda each: str(each["kind"]) != "Namespace")
    await kubectl(plane, "apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(objects))
    return account


async def kubectl(plane: ControlPlane, *arguments: str, text: str = "") -> str:
    """Run kubectl as the administrator and return what it printed.

    Raises:
        SandboxError: it failed or took more than a minute.
    """
    process = await asyncio.create_subprocess_exec(
        str(plane.binaries / "kubectl"),
        f"--kubeconfig={plane.kubeconfig}",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(KUBECTL_TIMEOUT_S):
            output, errors = await process.communicate(text.encode())
    except TimeoutError as late:
        raise SandboxError(f"kubectl {arguments[0]} took more than a minute") from late
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SandboxError(f"kubectl {arguments[0]} failed: {errors.decode().strip()}")
    return output.decode()
