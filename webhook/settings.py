"""The webhook's options; made in ``cli``, read everywhere, never changed."""

from dataclasses import dataclass, field

from provisioner.model.driver import EBS_DRIVER

# The names in manifests/webhook: tests/test_webhook_manifests.py compares both.
NAME = "ebs-webhook"  # of the Service and of both webhook configurations
NAMESPACE = "ebs-provisioner"
TLS_SECRET = "ebs-webhook-tls"  # noqa: S105 -- a name
LEASE = "ebs-webhook-repairs"
LISTEN = ":8443"


@dataclass(frozen=True, slots=True)
class Callers:
    """Who may send reviews: by default anyone who reaches the port, as API servers show nothing.

    Attributes:
        authority: PEM; a caller without a certificate that it signed fails in the handshake. ""
            for none needed.
        names: of which the caller's certificate must have one, as common name or DNS name; empty
            for any.
        token: what a caller has to send as its bearer token; "" for none needed.
    """

    authority: str = ""
    names: frozenset[str] = frozenset()
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of ``ebs-webhook serve``. Times in seconds.

    Attributes:
        kubeconfig: None for ``KUBECONFIG``, else the pod's own cluster.
        listen: "host:port", ":port" for all interfaces; port 0 chooses a free one.
        namespace: of the Secret, the lease and the Service.
        service: for whose name certificates are issued.
        driver: whose volumes these are, besides in-tree ones.
        strict: refuse what cannot be checked, instead of letting it through with a warning.
        volume_moves: hold pods back while a VolumeMove holds one of their claims.
        region: None for AWS_REGION, or that of the Nodes or of this instance.
        ec2_rates: raised quotas, as the controller takes them.
        tls_secret: name of the certificates' Secret.
        tls_names: further hosts and addresses in certificates.
        tls_manage: False when something else, such as cert-manager, writes that Secret.
        callers: who may send reviews; anyone by default.
        metrics_address: of /metrics, /healthz, /readyz; "" for none.
        notice_s: after SIGTERM, while connections are still accepted: until the endpoint is gone
            from the lists of all API servers.
        drain_s: then, for reviews under way; above the longest timeoutSeconds in the manifests.
    """

    kubeconfig: str | None = None
    listen: str = LISTEN
    namespace: str = NAMESPACE
    service: str = NAME
    driver: str = EBS_DRIVER
    strict: bool = False
    volume_moves: bool = False
    region: str | None = None
    ec2_rates: str = ""
    tls_secret: str = TLS_SECRET
    tls_names: tuple[str, ...] = ()
    tls_manage: bool = True
    callers: Callers = field(default_factory=Callers)
    metrics_address: str = ""
    notice_s: float = 8.0
    drain_s: float = 7.0
