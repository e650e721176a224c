"""Install the controller, the webhook and the node plugin into the sandbox by their manifests.

All of ``manifests/`` is applied but what needs real pods: the Deployments and the DaemonSet, which
KWOK would only pretend to run, and the webhook configurations, whose Service would lead nowhere.
The programs run as processes instead, each with a token of the very ServiceAccount that its
workload names, so a right that its RBAC lacks is missing here too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from provisioner.sandbox import workdir
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.kubectl import kubectl

MANIFESTS = Path(__file__).parents[2] / "manifests"

_NEEDS_PODS = (
    *("Deployment", "DaemonSet", "PodDisruptionBudget"),
    *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
)

WEBHOOK = "ebs-webhook"
"""Its registration with the API server, one of each kind."""

WEBHOOK_NAMESPACE = "ebs-provisioner"


@dataclass(frozen=True, slots=True)
class Account:
    """The ServiceAccount that the pods of a Deployment or a DaemonSet run as."""

    namespace: str
    name: str


def split(rendered: str) -> tuple[Account, list[dict[str, Any]]]:
    """Return the account that the first workload names, and all objects that need no pods.

    Raises:
        SandboxError: there is neither a Deployment nor a DaemonSet.
    """
    objects = [each for each in yaml.safe_load_all(rendered) if each]
    workloads = [each for each in objects if each["kind"] in ("Deployment", "DaemonSet")]
    if not workloads:
        raise SandboxError("the manifests hold no workload that names a ServiceAccount")
    first = workloads[0]
    account = Account(
        first["metadata"]["namespace"], first["spec"]["template"]["spec"]["serviceAccountName"]
    )
    return account, [each for each in objects if each["kind"] not in _NEEDS_PODS]


async def install(plane: ControlPlane, manifests: Path = MANIFESTS) -> Account:
    """Apply the manifests of a folder without what needs pods; return its workload's account.

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


async def install_volume_moves(plane: ControlPlane) -> None:
    """Apply all manifests once more, with the components of VolumeMoves, as ``install`` does.

    The options that they set, and the webhook's registration, are for whoever starts the programs.

    Raises:
        SandboxError: as for ``install``.
    """
    for manifests, component in (
        (MANIFESTS, "volume-moves"),
        (MANIFESTS / "webhook", "webhook-volume-moves"),
    ):
        folder = plane.folder / workdir.STATE / f"with-{component}"
        folder.mkdir(exist_ok=True)
        _write_kustomization(folder, resources=[manifests], components=[MANIFESTS / component])
        await install(plane, folder)


def _write_kustomization(folder: Path, **named: list[Path]) -> None:
    """Folders by key; kustomize takes them by relative names only."""
    relative = {key: [os.path.relpath(e, folder) for e in paths] for key, paths in named.items()}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(relative))


async def install_webhook(plane: ControlPlane) -> Account:
    """Apply the webhook's manifests and what they lean on; ``register_webhook`` has it asked.

    Raises:
        SandboxError: as for ``install``.
    """
    namespace = MANIFESTS / "namespace.yaml"
    await kubectl(plane, "apply", "--server-side", "-f", str(namespace))
    return await install(plane, MANIFESTS / "webhook")


async def install_node(plane: ControlPlane) -> Account:
    """Apply the node plugin's manifests, its account and rights; the plugin runs as a process.

    Raises:
        SandboxError: as for ``install``.
    """
    return await install(plane, MANIFESTS / "node")


async def register_webhook(plane: ControlPlane, url: str, *, holds_pods: bool = False) -> None:
    """Apply its two configurations, with an address in place of a Service that leads nowhere.

    Args:
        plane: whose API server is to ask.
        url: ``https://HOST:PORT`` of the webhook.
        holds_pods: with what ``webhook-volume-moves`` adds.

    Raises:
        SandboxError: the API server cannot be reached, or refuses them.
    """
    both = configurations_by_url(url, holds_pods=holds_pods)
    # What a webhook has filled in stays: an apply owns what it names.
    arguments = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    await kubectl(plane, *arguments, text=yaml.safe_dump_all(both))


def configurations_by_url(url: str, *, holds_pods: bool = False) -> list[dict[str, Any]]:
    """Both webhook configurations of the manifests, reached at this address."""
    file = MANIFESTS / "webhook" / "webhooks.yaml"
    both: list[dict[str, Any]] = list(yaml.safe_load_all(file.read_text()))
    if holds_pods:
        added = yaml.safe_load((MANIFESTS / "webhook-volume-moves" / "pods.yaml").read_text())
        same = next(each for each in both if each["kind"] == added["kind"])
        same["webhooks"] += added["webhooks"]
    for webhook in (each for configuration in both for each in configuration["webhooks"]):
        webhook["clientConfig"] = {"url": url + webhook["clientConfig"]["service"]["path"]}
    return both


async def unregister_webhook(plane: ControlPlane) -> None:
    """Have the API server ask nobody any more.

    Raises:
        SandboxError: the API server cannot be reached.
    """
    both = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    await kubectl(plane, "delete", both, WEBHOOK, "--ignore-not-found")
