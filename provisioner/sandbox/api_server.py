"""How the API server of a sandbox is started."""

from __future__ import annotations

from pathlib import Path

from provisioner.sandbox.credentials import Credentials

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
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={keys.certificate}",
        f"--tls-private-key-file={keys.key}",
        f"--token-auth-file={keys.token_file}",
        f"--service-account-key-file={keys.service_account_key}",
        f"--service-account-signing-key-file={keys.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        # As everywhere where a node plugin runs; the namespaces' own levels say who may.
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",
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
    return ["--authorization-mode=RBAC"]


def with_kubelets(keys: Credentials) -> list[str]:
    """Return those that also let real kubelets do what kubelets may, and that call them."""
    pair = keys.client("kube-apiserver-kubelet-client", "system:masters")
    return [
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={keys.authority}",
        f"--kubelet-client-certificate={pair.certificate}",
        f"--kubelet-client-key={pair.key}",
        f"--kubelet-certificate-authority={keys.authority}",
        # Nobody can look up the names of instances here.
        "--kubelet-preferred-address-types=InternalIP",
    ]
