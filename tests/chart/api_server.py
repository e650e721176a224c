"""An API server that Helm's ``lookup`` can ask: it answers with given objects, and changes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

from tests.chart.helm import CHART_FOLDER, NAMESPACE, helm

Json = dict[str, Any]
VERSION = {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
KINDS: dict[str, dict[str, str]] = {
    "v1": {"namespaces": "Namespace", "nodes": "Node"},
    "apps/v1": {"deployments": "Deployment", "daemonsets": "DaemonSet"},
    "rbac.authorization.k8s.io/v1": {"clusterroles": "ClusterRole"},
    "storage.k8s.io/v1": {"csidrivers": "CSIDriver", "storageclasses": "StorageClass"},
    "snapshot.storage.k8s.io/v1": {"volumesnapshotclasses": "VolumeSnapshotClass"},
}
"""What the chart looks for, by group and plural."""
NAMESPACED = {"deployments", "daemonsets"}
KUBE_SYSTEM: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}


def answers(objects: Iterable[Json], without: str = "") -> dict[str, Json]:
    """What is answered on each path: which kinds there are, and the objects.

    ``without``: a group whose CRDs are not installed.
    """
    served = {group: kinds for group, kinds in KINDS.items() if group != without}
    groups = [each.split("/") for each in served if "/" in each]
    found: dict[str, Json] = {
        "/version": VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [
                {"name": name, "versions": [{"groupVersion": f"{name}/{version}"}]}
                for name, version in groups
            ],
        },
    }
    for group, kinds in served.items():
        found[root(group)] = {
            "kind": "APIResourceList",
            "groupVersion": group,
            "resources": [
                {"name": plural, "kind": kind, "namespaced": plural in NAMESPACED, "verbs": ["get"]}
                for plural, kind in kinds.items()
            ],
        }
    for each in (KUBE_SYSTEM, *objects):
        [plural] = [
            name for name, kind in KINDS[each["apiVersion"]].items() if kind == each["kind"]
        ]
        namespace = each["metadata"].get("namespace")
        within = f"/namespaces/{namespace}" if namespace else ""
        found[f"{root(each['apiVersion'])}{within}/{plural}/{each['metadata']['name']}"] = each
    return found


def root(group: str) -> str:
    """The path below which a group's objects are."""
    return f"/apis/{group}" if "/" in group else f"/api/{group}"


@contextmanager
def serving(objects: Iterable[Json], without: str = "") -> Iterator[str]:
    """The URL of a cluster that has the namespace ``kube-system`` and these objects."""
    known = answers(objects, without)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            self.send_response(200 if path in known else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(known.get(path, missing)).encode())

        def log_message(self, *_: object):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def refused(values: Json, *objects: Json, without: str = "") -> list[str]:
    """What is refused in a cluster with these objects, and without the kinds of this group."""
    # One refusal that is always there: nothing is asked of the cluster after it.
    values = values | {"fips": True}
    with serving(objects, without) as url:
        code, _, errors = helm(
            *("template", "ebs-provisioner", str(CHART_FOLDER), "--namespace", NAMESPACE),
            *("--dry-run=server", f"--kube-apiserver={url}", "--values", "-"),
            text=yaml.safe_dump(values),
        )
    assert code != 0
    sentences = [line[2:] for line in errors.splitlines() if line.startswith("- ")]
    assert [each for each in sentences if each.startswith("fips:")], errors
    return [each for each in sentences if not each.startswith("fips:")]
