"""StatefulSets on real nodes whose pods write all the time, and what became of each line.

A line has its number, the machine's uptime, its pod and node, and a checksum over itself and the
checksum of the line before: a line that is lost, torn, doubled or out of order breaks the chain.
A line that is on disk (fsync) is acknowledged to a file of the node, which outlives pod and volume.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.real_node.node import LABEL, RealNode
from tests.cluster.place import Place

PAUSE_S = 0.2
_ACKNOWLEDGED = "var/lib/diaries"  # on the node
_SUM = 64  # hex digits
_WRITE = f"""\
trap 'exit 0' TERM
cd /data || exit 1
[ -e sum ] || {{ dd if=/dev/urandom of=bytes bs=1M count=20 conv=fsync && sha256sum bytes > sum; }}
sha256sum -c sum || exit 9
line=$(tail -n 1 log)
n=${{line%% *}} sum=${{line##* }} n=${{n:-0}}
while :; do
  n=$((n + 1))
  read -r up _ < /proc/uptime
  line="$n $up $POD $NODE"
  sum=$(echo "$sum $line" | sha256sum) sum=${{sum%% *}}
  echo "$line $sum" >> log && sync log && echo "$line $sum" >> "/acknowledged/$POD" || exit 1
  sleep {PAUSE_S}
done
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line; ``at_s`` is the machine's uptime, the same on all nodes."""

    number: int
    at_s: float
    node: str
    text: str

    @classmethod
    def read(cls, text: str) -> Line:
        """Raises ValueError for a line that is torn."""
        number, at_s, _, node, digest = text.split(" ")
        if len(digest) != _SUM:
            raise ValueError(f"torn: {text!r}")
        return cls(int(number), float(at_s), node, text)


def chain(texts: Iterable[str]) -> list[Line]:
    """The lines of a whole diary.

    Raises:
        AssertionError: one is lost, torn, doubled or out of order.
    """
    lines, before = [], ""
    for number, text in enumerate(texts, start=1):
        line = Line.read(text)
        said, _, digest = text.rpartition(" ")
        assert line.number == number, text
        assert digest == hashlib.sha256(f"{before} {said}\n".encode()).hexdigest(), text
        lines.append(line)
        before = digest
    return lines


def longest_pause_s(lines: Sequence[Line]) -> float:
    """The longest time between two lines."""
    return max((after.at_s - before.at_s for before, after in pairwise(lines)), default=0.0)


class Diaries:
    """A StatefulSet of writers in a place; their claims are ``data-diary-N``."""

    NAME = "diary"

    def __init__(
        self, place: Place, nodes: Sequence[RealNode], replicas: int = 3, size: str = "1Gi"
    ) -> None:
        self._place = place
        self._nodes = nodes
        self._replicas = replicas
        self._size = size
        self.path = f"/apis/apps/v1/namespaces/{place.name}/statefulsets/{self.NAME}"

    def pod(self, replica: int) -> str:
        """The name of a replica's pod."""
        return f"{self.NAME}-{replica}"

    def claim(self, replica: int) -> str:
        """The name of a replica's claim."""
        return f"data-{self.pod(replica)}"

    async def start(self, class_name: str) -> None:
        """Create it, and wait until each has written a line."""
        here = self._place.name
        mounts = [
            {"name": "data", "mountPath": "/data"},
            {"name": "acknowledged", "mountPath": "/acknowledged"},
        ]
        folder = {"path": f"/{_ACKNOWLEDGED}/{here}", "type": "DirectoryOrCreate"}
        told = {"POD": "metadata.name", "NODE": "spec.nodeName"}
        container = {
            "name": "main",
            "image": POD_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", _WRITE],
            "env": [
                {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                for name, path in told.items()
            ],
            "volumeMounts": mounts,
        }
        pod = {
            "nodeSelector": {LABEL: "real"},
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": "acknowledged", "hostPath": folder}],
        }
        asked = {
            "storageClassName": class_name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": self._size}},
        }
        spec = {
            "serviceName": self.NAME,
            "replicas": self._replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": self.NAME}},
            "template": {"metadata": {"labels": {"app": self.NAME}}, "spec": pod},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": asked}],
        }
        body = {"metadata": {"name": self.NAME}, "spec": spec}
        await self._place.api.create(self.path.rpartition("/")[0], body)
        for replica in range(self._replicas):
            await self.goes_on(replica)

    def acknowledged(self, replica: int) -> list[Line]:
        """All lines of a replica that were ever said to be on disk, on whichever node."""
        texts: list[str] = []
        for node in self._nodes:
            file = node.root / _ACKNOWLEDGED / self._place.name / self.pod(replica)
            if file.exists():
                texts += file.read_text().splitlines(keepends=True)
        # The last one may just be written.
        lines = [Line.read(text.rstrip("\n")) for text in texts if text.endswith("\n")]
        return sorted(lines, key=lambda line: line.at_s)

    async def goes_on(self, replica: int, after: int = 0) -> Line:
        """Wait until a replica has written more than so many lines; the first one of these."""

        async def seen() -> Line | None:
            lines = await asyncio.to_thread(self.acknowledged, replica)
            return next((line for line in lines if line.number > after), None)

        what = f"{self.pod(replica)} writes line {after + 1}"
        return await self._place.cluster.until(what, seen, timeout_s=90.0)

    async def container(self, replica: int) -> tuple[str, int]:
        """The id of a replica's container, and how often it was started again."""
        found = await self._place.api.get(f"{self._place.pods}/{self.pod(replica)}")
        (status,) = found["status"]["containerStatuses"]
        return status["containerID"], status["restartCount"]

    async def read(self, replica: int) -> list[Line]:
        """The whole diary as the pod has it; raises AssertionError as ``chain``."""
        where = ("exec", self.pod(replica), "--namespace", self._place.name, "--")
        # What is acknowledged before is to be there.
        acknowledged = await asyncio.to_thread(self.acknowledged, replica)
        said = await kubectl(
            self._place.cluster.sandbox.plane,
            *where,
            "sh",
            "-c",
            "sha256sum -c /data/sum >&2; cat /data/log",
        )
        *whole, last = said.split("\n")
        assert not last, f"torn: {last!r}"
        lines = chain(whole)
        missing = {each.text for each in acknowledged} - {each.text for each in lines}
        assert not missing, missing
        return lines

    async def stop(self) -> None:
        """Delete it, and wait until its pods are gone."""
        await self._place.remove(self.path)
        for replica in range(self._replicas):
            await self._place.is_gone(f"{self._place.pods}/{self.pod(replica)}", 90.0)


def uuid_of(content: Path) -> str:
    """The UUID of the file system on a volume, by the volume's bytes."""
    return _run("blkid", "--probe", "--match-tag", "UUID", "--output", "value", str(content))


def diary_on(content: Path) -> list[Line]:
    """The diary on a volume of ext4 that nobody has mounted; raises AssertionError as ``chain``."""
    return chain(_run("debugfs", "-R", "cat /log", str(content)).splitlines())


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout.strip()
