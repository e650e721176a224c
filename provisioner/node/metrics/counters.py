"""The node plugin's metrics of itself; those of volumes are in ``node/metrics/collector.py``."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from provisioner.version import our_version

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class NodeMetrics:
    """The metrics, and the registry that /metrics serves."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        _build_info(registry)
        self.rpcs = Counter(
            "ebs_provisioner_node_rpcs_total",
            "Calls of the kubelet, by method and gRPC code.",
            ["method", "code"],
            registry=registry,
        )
        self.rpc_seconds = Histogram(
            "ebs_provisioner_node_rpc_seconds",
            "How long calls of the kubelet took, by method.",
            ["method"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.registered = Gauge(
            "ebs_provisioner_node_registered",
            "1 while the plugin is registered with the kubelet, as last reported.",
            registry=registry,
        )
        self.refusals = Counter(
            "ebs_provisioner_node_registrations_refused_total",
            "Registrations that the kubelet refused.",
            registry=registry,
        )
        self.growths_failed = Gauge(
            "ebs_provisioner_node_growths_failed",
            "Failed growths of file systems since the start; the file systems are used at their "
            "old size, and the log has the reason.",
            registry=registry,
        )
        self.programs = Gauge(
            "ebs_provisioner_node_programs_running",
            "Running programs such as mkfs, fsck and mount, even if no call waits for them.",
            registry=registry,
        )


def _build_info(registry: CollectorRegistry) -> None:
    name, text = "ebs_provisioner_node_build_info", "Always 1; the label has the version."
    Gauge(name, text, ["version"], registry=registry).labels(our_version()).set(1)
