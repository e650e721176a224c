"""A StatefulSet in a fake cluster, whose pods are not Ready while their claims are moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.moves.fake_cluster import NAMESPACE, FakeCluster

Json = dict[str, Any]
APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
_OVER = {"Done", "Aborted", "Refused"}


class FakeSet:
    """StatefulSet web.

    Attributes:
        stopped_at_once: the most pods that were down at the same time.
        begun: the pods whose claims' moves were made, in their order.
        broken: pods that do not come to be Ready again.
    """

    def __init__(
        self, cluster: FakeCluster, replicas: int = 3, templates: Sequence[str] = ("data",)
    ) -> None:
        self.cluster = cluster
        self.replicas = replicas
        self.stopped_at_once = 0
        self.begun: list[str] = []
        self.broken: set[str] = set()
        self.body: Json = {
            "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {
                "replicas": replicas,
                "template": {"metadata": {"labels": {"app": "web"}}},
                "volumeClaimTemplates": [{"metadata": {"name": each}} for each in templates],
            },
        }
        cluster.others[f"{APPS}/statefulsets/web"] = self.body
        for number in range(replicas):
            self.set_pod(f"web-{number}", is_ready=True)
            for each in templates:
                cluster.put_claim(f"{each}-web-{number}")
        cluster.meanwhile = lambda _: self.look()
        cluster.pods_are_read = self.look

    def set_pod(self, name: str, *, is_ready: bool) -> None:
        ready = {"type": "Ready", "status": "True" if is_ready else "False"}
        body = {"metadata": {"name": name}, "status": {"conditions": [ready]}}
        self.cluster.others[f"{PODS}/{name}"] = body

    def is_ready(self, name: str) -> bool:
        (ready,) = self.cluster.others[f"{PODS}/{name}"]["status"]["conditions"]
        return bool(ready["status"] == "True")

    def look(self) -> None:
        """Each time that a move or a pod is read: pods are down while moves of their claims are there."""
        moves = [e for e in self.cluster.moves.values() if not e["spec"].get("dryRun")]
        for number in range(self.replicas):
            pod = f"web-{number}"
            mine = [e for e in moves if e["spec"]["claimName"].endswith(f"-{pod}")]
            if not mine:
                continue
            if pod not in self.begun:
                self.begun.append(pod)
            over = all(each["status"].get("phase") in _OVER for each in mine)
            self.set_pod(pod, is_ready=over and pod not in self.broken)
        down = sum(not self.is_ready(f"web-{number}") for number in range(self.replicas))
        self.stopped_at_once = max(self.stopped_at_once, down)
