"""The release of the chart in a sandbox: what Helm does with it, and when it works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import yaml

from provisioner.sandbox.control_plane import ControlPlane, until
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.installed import helm, values
from provisioner.sandbox.installed.archive import ImageArchive
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.node import RealNode
from provisioner.sandbox.strict_ec2.client import CREDENTIALS

CHART: Final = MANIFESTS / "chart"
NAME: Final = "ebs-provisioner"
NAMESPACE: Final = "ebs-provisioner"
NODE_NAMESPACE: Final = "ebs-provisioner-node"

_WAIT_S: Final = 180
_ELECTED_S: Final = 90.0
_OURS: Final = "labelSelector=app.kubernetes.io/name%3Debs-provisioner,app.kubernetes.io/component"
_CONTROLLERS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods?{_OURS}%3Dcontroller"

Json = dict[str, Any]


class Release:
    """The product in one cluster, as its users install it.

    Args:
        plane: of the cluster.
        nodes: where its pods run, and which get its images.
        ec2_endpoint: the strict EC2 on this machine.
        cluster_id: what volumes are tagged with.
        webhook: whether the webhook is installed too.
    """

    def __init__(
        self,
        plane: ControlPlane,
        nodes: Sequence[RealNode],
        ec2_endpoint: str,
        cluster_id: str,
        *,
        webhook: bool,
    ) -> None:
        assert plane.network is not None, "the product is installed on real nodes"
        self._plane = plane
        self._nodes = nodes
        self._images = [""]
        self._values = partial(
            values.of,
            ec2_url=plane.network.reachable(ec2_endpoint),
            cluster_id=cluster_id,
            webhook=webhook,
        )

    @property
    def image(self) -> str:
        """The name of the image that its pods have; "" while it is not installed."""
        return self._images[-1]

    async def install(self, image: ImageArchive, *more: str) -> str:
        """Give an image to the nodes, install the chart with it, and wait until it works.

        Args:
            image: which.
            more: arguments of ``helm install``.

        Returns:
            What Helm printed: the chart's notes.

        Raises:
            SandboxError: the image or the chart is refused, or a pod does not get ready.
        """
        namespace = MANIFESTS / "namespace.yaml"
        await kubectl(self._plane, "apply", "--server-side", "-f", str(namespace))
        await self._keys()
        return await self._applied("install", image, *more)

    async def upgrade(self, image: ImageArchive, *more: str) -> str:
        """Roll all pods over to another image, and wait until it works.

        Raises:
            SandboxError: as for ``install``.
        """
        return await self._applied("upgrade", image, *more)

    async def rollback(self) -> None:
        """Go back to the last revision but one, and wait until it works.

        Raises:
            SandboxError: it is refused, or a pod does not get ready.
        """
        await self._helm("rollback", *self._waiting())
        self._images.append(self._images[-2])
        await self.works()

    async def uninstall(self) -> str:
        """Uninstall it, and wait until its pods are gone; what Helm said is left.

        Raises:
            SandboxError: something does not go.
        """
        said = await self._helm("uninstall")
        self._images.append("")
        await self._plane.crew.unless_failed(until(self._gone), _WAIT_S, "the end of its pods")
        return said

    async def test(self) -> str:
        """Run ``helm test``; what it printed.

        Raises:
            SandboxError: the test has failed.
        """
        return await self._helm("test", f"--timeout={_WAIT_S}s", "--logs")

    async def works(self) -> None:
        """Wait until a controller leads: claims made before that wait for it.

        Raises:
            SandboxError: a part of the sandbox died, or none comes to lead.
        """
        await self._plane.crew.unless_failed(until(self._leads), _ELECTED_S, "the first election")

    async def _applied(self, command: str, image: ImageArchive, *more: str) -> str:
        await asyncio.gather(*(node.import_images(image.path) for node in self._nodes))
        text = yaml.safe_dump(self._values(image))
        words = (str(CHART), "--values=-", *self._waiting(), *more)
        said = await self._helm(command, *words, text=text)
        self._images.append(image.name)
        await self.works()
        return said

    @staticmethod
    def _waiting() -> tuple[str, str]:
        return "--wait", f"--timeout={_WAIT_S}s"

    async def _helm(self, command: str, *words: str, text: str = "") -> str:
        code, output, errors = await helm.run(
            self._plane, command, NAME, *words, f"--namespace={NAMESPACE}", text=text
        )
        if code:
            waiting = "".join(f"\n  {line}" for line in await self.not_ready())
            raise SandboxError(f"helm {command} failed: {errors.strip()}{waiting}")
        return output

    async def not_ready(self) -> list[str]:
        """Return a line for each pod of the product that is not ready, with the reason."""
        lines = []
        for namespace in (NAMESPACE, NODE_NAMESPACE):
            found = await self._plane.api.get(f"/api/v1/namespaces/{namespace}/pods")
            lines += [line for each in found["items"] if (line := why_not_ready(each))]
        return lines

    async def _keys(self) -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": values.KEYS_SECRET, "namespace": NAMESPACE},
            "stringData": {
                "key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
                "access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            },
        }
        text = yaml.safe_dump(secret)
        await kubectl(self._plane, "apply", "--server-side", "-f", "-", text=text)

    async def _leads(self) -> bool:
        pods = (await self._plane.api.get(_CONTROLLERS))["items"]
        names = ready_to_stay(pods)
        paths = [f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:8080/proxy/metrics" for name in names]
        told = await asyncio.gather(*(self._plane.api.get(path) for path in paths))
        return any("\nebs_provisioner_leader 1.0\n" in each for each in told)

    async def _gone(self) -> bool:
        # The pod of helm test has no component.
        paths = [f"/api/v1/namespaces/{each}/pods?{_OURS}" for each in (NAMESPACE, NODE_NAMESPACE)]
        found = await asyncio.gather(*(self._plane.api.get(path) for path in paths))
        return not any(each["items"] for each in found)


def ready_to_stay(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the pods that are ready and not about to end: one that ends may lead."""
    return [
        each["metadata"]["name"]
        for each in pods
        if not each["metadata"].get("deletionTimestamp") and not why_not_ready(each)
    ]


def why_not_ready(pod: Mapping[str, Any]) -> str:
    """Return why a pod is not ready, in a line; "" if it is."""
    status = pod.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    if conditions.get("Ready", {}).get("status") == "True":
        return ""
    whys = [_of_container(each) for each in status.get("containerStatuses") or ()]
    whys = [why for why in whys if why] or [
        str(each.get("message") or each["type"])
        for each in conditions.values()
        if each["status"] != "True"
    ][:1]
    name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
    return f"{name}: {'; '.join(whys) or status.get('phase', 'unknown')}"


def _of_container(status: Mapping[str, Any]) -> str:
    for kind in ("state", "lastState"):
        for name in ("waiting", "terminated"):
            found = (status.get(kind) or {}).get(name)
            if found:
                message = " ".join(str(found.get("message", "")).split())
                return f"{found.get('reason', name)} {message}".strip()
    return ""
