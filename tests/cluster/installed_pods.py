"""What the tests of the installed product share: its pods, what runs in them, and a pod that writes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

from provisioner.sandbox import kubectl as kubectl_tool
from provisioner.sandbox.installed.release import NAMESPACE, NODE_NAMESPACE, Release
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.file_pods import pod
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.up import Sandbox
from tests.cluster.audit import records_of
from tests.cluster.background import Background

Json = dict[str, Any]

CONTROLLER, WEBHOOK, NODE = "controller", "webhook", "node"
COMPONENTS = {CONTROLLER: NAMESPACE, WEBHOOK: NAMESPACE, NODE: NODE_NAMESPACE}

_WRITE = """\
set -e
n=$(cat /data/numbers 2>/dev/null | wc -l)
while :; do
  n=$((n + 1))
  echo $n | dd of=/data/numbers oflag=append conv=notrunc,fsync 2>/dev/null
  sleep 0.05
done
"""
_KEEP = "[ -s /data/numbers ] || echo 1 > /data/numbers; sleep 100000"
_CHECK = 'awk \'$1 != NR { print "line " NR " is " $0; exit 1 } END { print NR }\' /data/numbers'

_PORTS = """\
import pathlib
lines = [l.split() for f in ("tcp", "tcp6") for l in pathlib.Path("/proc/net", f).open()]
print(*sorted({int(l[1].rpartition(":")[2], 16) for l in lines if l[3] == "0A"}))
"""
"""Its state 0A is TCP_LISTEN: Linux 6.18 include/net/tcp_states.h."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The product in a cluster of its own; ``real`` is where that lives."""

    real: Background

    @property
    def sandbox(self) -> Sandbox:
        """With all of its parts alive."""
        self.real.sandbox.crew.check()
        return self.real.sandbox

    @property
    def release(self) -> Release:
        """The chart's."""
        assert self.sandbox.release is not None
        return self.sandbox.release

    async def kubectl(self, *arguments: str, text: str = "") -> str:
        """Run kubectl as the administrator."""
        return await kubectl(self.sandbox.plane, *arguments, text=text)

    async def refused(self, *arguments: str, text: str = "") -> str:
        """Why kubectl is refused this."""
        code, output, errors = await kubectl_tool.run(self.sandbox.plane, *arguments, text=text)
        assert code != 0, output
        return errors

    async def get(self, *arguments: str) -> Json:
        """One object, or a list of them."""
        found: Json = json.loads(await self.kubectl("get", *arguments, "--output=json"))
        return found

    async def pods(self, component: str) -> list[Json]:
        """The pods of a program that are not about to end."""
        found = await self.all_pods(component)
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    async def all_pods(self, component: str) -> list[Json]:
        """All pods of a program, those that are about to end too."""
        selector = f"app.kubernetes.io/name=ebs-provisioner,app.kubernetes.io/component={component}"
        found = await self.get("pods", f"--namespace={COMPONENTS[component]}", "-l", selector)
        return list(found["items"])

    def drains(self, node: str) -> bool:
        """Whether the drain hook runs on a node; read from outside, as ``kubectl exec`` is slow."""
        [host] = [each.host for each in self.sandbox.real_nodes if each.name == node]
        for each in (host.root / "proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it may end while it is read
                if b"\0node\0drain\0" in each.read_bytes():
                    return True
        return False

    async def python(self, found: Json, script: str) -> str:
        """Run Python in a pod of ours; what it prints. (There is no shell.)"""
        where = found["metadata"]
        program = ("python3", "-c", script)
        arguments = ("exec", where["name"], f"--namespace={where['namespace']}", "--", *program)
        return (await self.kubectl(*arguments)).strip()

    async def listening(self, found: Json) -> set[int]:
        """The ports that a pod listens on, by the kernel."""
        return {int(each) for each in (await self.python(found, _PORTS)).split()}

    async def scrape(self, found: Json) -> None:
        """Read the metrics of a pod, as Prometheus does."""
        where, [container] = found["metadata"], found["spec"]["containers"]
        [port] = [each["containerPort"] for each in container["ports"] if each["name"] == "metrics"]
        pod = f"/api/v1/namespaces/{where['namespace']}/pods/{where['name']}:{port}"
        await self.kubectl("get", "--raw", f"{pod}/proxy/metrics")

    def requests(self) -> list[Json]:
        """What the product's accounts have asked the API server for, by its audit log."""
        accounts = {f"system:serviceaccount:{each}:" for each in COMPONENTS.values()}
        return [each for prefix in accounts for each in records_of(self.sandbox, prefix)]

    # -- a pod that writes all the while

    async def writer(self) -> str:
        """Have a pod write to the volume from now on, if none does; its name."""
        if await self._exists("writer"):
            return "writer"
        await self.kubectl("delete", "pod", "reader", "--ignore-not-found")
        return await self._with_volume("writer", _WRITE)

    async def reader(self) -> str:
        """Have a pod that only has the volume, if there is none; its name."""
        if await self._exists("reader"):
            return "reader"
        if await self._exists("writer"):
            await self.kubectl("delete", "pod", "writer")
        return await self._with_volume("reader", _KEEP)

    async def _exists(self, pod: str) -> bool:
        """Whether there is such a pod, and it is not about to end."""
        found = await self.get("pods", f"--field-selector=metadata.name={pod}")
        return any("deletionTimestamp" not in each["metadata"] for each in found["items"])

    async def _with_volume(self, name: str, script: str) -> str:
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "numbers"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "ebs-gp3",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await self.kubectl("apply", "-f", "-", text=json.dumps(claim))
        return await self._starts(name, script)

    async def _starts(self, name: str, script: str) -> str:
        """Run a pod with the claim until it is ready."""
        document = pod(name, script, {"/data": "numbers"}, image=POD_IMAGE)
        typed = {"apiVersion": "v1", "kind": "Pod"} | document
        await self.kubectl("apply", "-f", "-", text=json.dumps(typed))
        await self.kubectl("wait", "--for=condition=Ready", "--timeout=50s", f"pod/{name}")
        return name

    async def written(self, name: str) -> int:
        """How many lines there are; each is there once, and in order."""
        return int(await self.kubectl("exec", name, "--", "sh", "-c", _CHECK))


def containers(pods: list[Json]) -> set[tuple[str, str, int]]:
    """Each container with its image's id, and how often it was started again."""
    return {
        (status["containerID"], status["imageID"], status["restartCount"])
        for each in pods
        for status in each["status"]["containerStatuses"]
    }


def images(pods: list[Json]) -> set[str]:
    """The ids of the images that run: digests, which no tag can hide."""
    return {image for _, image, _ in containers(pods)}


def pod_of(request: Json) -> str:
    """The pod whose token a request had."""
    [name] = request["user"]["extra"].get("authentication.kubernetes.io/pod-name", [""])
    return str(name)
