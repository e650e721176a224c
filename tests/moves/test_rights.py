"""The ClusterRole for people who move claims is what the command asks, and no more."""

from __future__ import annotations

import yaml

from provisioner.moves.requests import ROLE
from tests.documents import ROOT
from tests.moves.conftest import Run
from tests.moves.fake_cluster import NAMESPACE, PLANNED, FakeCluster, Fault
from tests.moves.fake_set import FakeSet

VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
NOT_OURS = {("watch", "volumemoves")}  # kubectl get -w
EVERYBODYS = {("create", "selfsubjectaccessreviews")}
# Of no namespace, so that a RoleBinding cannot give it: a note is missing from the plan without it.
OF_THE_CLUSTER = {("get", "storageclasses")}
APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"


def owned_by(kind: str, name: str) -> dict[str, object]:
    owner = {"kind": kind, "name": name, "controller": True}
    return {"metadata": {"name": "x", "ownerReferences": [owner]}, "spec": {}}


async def test_the_role_is_what_the_command_asks(cluster: FakeCluster, run: Run):
    plan = PLANNED["plan"] | {"pods": ["web-0", "api-1"]}
    cluster.plan = PLANNED | {"plan": plan}
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    cluster.others = {
        f"{pods}/web-0": owned_by("StatefulSet", "web"),
        f"{pods}/api-1": owned_by("ReplicaSet", "api-77"),
        f"{APPS}/replicasets/api-77": owned_by("Deployment", "api"),
    }
    role = yaml.safe_load((ROOT / "manifests/volume-moves/mover.yaml").read_text())

    done = await run("shop/data", "--to-zone", "us-east-1b", "--yes")
    cluster.put("other", {"phase": "Held"})
    aborted = await run("--abort", "shop/other")
    of_set = FakeSet(cluster)
    template = {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}
    of_set.body["spec"]["volumeClaimTemplates"] = [template]
    row = await run("sts/shop/web", "--to-zone", "us-east-1b", "--yes")

    assert (done.exit_code, aborted.exit_code, row.exit_code) == (0, 0, 0), row.output
    said, here = " ".join(done.stdout.split()), f"--kubeconfig {cluster.target.kubeconfig}"
    for owner in ("statefulset web", "deployment api"):
        assert f"to stop: kubectl {here} -n shop scale {owner} --replicas=0" in said
    asked = {
        (VERBS.get(method) or ("get" if name else "list"), kind)
        for method, kind, name in cluster.log
    }
    given = {(v, r) for rule in role["rules"] for v in rule["verbs"] for r in rule["resources"]}
    assert given - NOT_OURS == asked - EVERYBODYS - OF_THE_CLUSTER
    assert role["metadata"]["name"] == ROLE
    assert "labels" not in role["metadata"], "it is aggregated to no other role"


async def test_what_may_not_be_read_is_told_and_stops_nobody(cluster: FakeCluster, run: Run):
    cluster.plan = PLANNED | {"plan": PLANNED["plan"] | {"pods": ["web-0"]}}
    cluster.faults = [Fault("GET", "pods", 403, message="cannot read pods")]
    done = await run("shop/data", "--to-zone", "us-east-1b", "--dry-run")

    assert done.exit_code == 0
    assert "Pod web-0 stops" in done.stdout
    assert "could not read get pods" in done.stderr


async def test_budgets_and_classes_that_may_not_be_read_stop_no_set(cluster: FakeCluster, run: Run):
    FakeSet(cluster)
    cluster.faults = [Fault("GET", "poddisruptionbudgets", 403, message="cannot list budgets")]
    done = await run("sts/shop/web", "--to-zone", "us-east-1b", "--yes")

    assert done.exit_code == 0, done.output
    assert "could not read list poddisruptionbudgets" in done.stderr
