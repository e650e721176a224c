"""How the API server of a sandbox is started."""

from __future__ import annotations

import json
from pathlib import Path

from provisioner.sandbox.credentials import Credentials
from provisioner.sandbox.network.addresses import ROUTER, SERVICES

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
# What the tests ask the audit log for: which rights the service accounts have used.
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
"""


def arguments(
    keys: Credentials, *, port: int, etcd_port: int, audit_policy: Path, audit_log: Path
) -> list[str]:
    """Return the arguments of kube-apiserver."""
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={keys.certificate}",
        f"--tls-private-key-file={keys.key}",
        f"--token-auth-file={keys.token_file}",
        f"--service-account-key-file={keys.service_account_key}",
        f"--service-account-signing-key-file={keys.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICES}",
        # As everywhere where a node plugin runs; the namespaces' own levels say who may.
        "--allow-privileged=true",
        "--enable-priority-and-fairness=false",
        # Without priority and fairness these two are the only limit: the defaults, 400 and
        # 200, would answer 429 to a thousand claims at once.
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        f"--audit-policy-file={audit_policy}",
        f"--audit-log-path={audit_log}",
        "--audit-log-mode=batch",
        "--audit-log-batch-max-wait=1s",
    ]


def without_kubelets() -> list[str]:
    """Return the arguments that let accounts do what RBAC says."""
    return [
        "--authorization-mode=RBAC",
        "--advertise-address=127.0.0.1",
        # No endpoint can be on the loopback.
        "--endpoint-reconciler-type=none",
    ]


def egress(socket: Path) -> str:
    """Return what ``--egress-selector-config-file`` takes: nodes and pods are behind a proxy.

    Args:
        socket: of a proxy that knows HTTP's CONNECT.
    """
    transport = {"uds": {"udsName": str(socket)}}
    selection = {
        "name": "cluster",
        "connection": {"proxyProtocol": "HTTPConnect", "transport": transport},
    }
    return json.dumps(
        {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [selection],
        }
    )


def with_kubelets(keys: Credentials, egress_file: Path) -> list[str]:
    """Return those that let real kubelets do what kubelets may, and that reach them and pods.

    Args:
        keys: of the control plane.
        egress_file: with what ``egress`` returns.
    """
    pair = keys.client("kube-apiserver-kubelet-client", "system:masters")
    return [
        "--authorization-mode=Node,RBAC",
        # Where nodes and pods find this API server.
        f"--advertise-address={ROUTER}",
        f"--egress-selector-config-file={egress_file}",
        # A webhook that is a Service is called at the addresses of its pods. (Without, it is called
        # at that of the Service, which a node's kube-proxy serves; but for this the node must be
        # on, and a new pod counts up to a second later.)
        "--enable-aggregator-routing=true",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={keys.authority}",
        f"--kubelet-client-certificate={pair.certificate}",
        f"--kubelet-client-key={pair.key}",
        f"--kubelet-certificate-authority={keys.authority}",
        # Nobody can look up the names of instances here.
        "--kubelet-preferred-address-types=InternalIP",
    ]
