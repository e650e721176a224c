"""What the node plugin measures of itself; of its volumes: ``node/metrics/collector.py``."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class NodeMetrics:
    """The series, and the registry that /metrics shows."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.rpcs = Counter(
            "ebs_provisioner_node_rpcs_total",
            "Calls of the kubelet that have ended, by method and gRPC code.",
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
            "1 while the kubelet has the plugin registered, as far as it has told.",
            registry=registry,
        )
        self.refusals = Counter(
            "ebs_provisioner_node_registrations_refused_total",
            "Registrations that the kubelet has refused.",
            registry=registry,
        )
        self.growths_failed = Gauge(
            "ebs_provisioner_node_growths_failed",
            "File systems that could not be grown, since the start; they are used at their old "
            "size, and the log says why.",
            registry=registry,
        )
        self.programs = Gauge(
            "ebs_provisioner_node_programs_running",
            "Programs such as mkfs, fsck and mount that run now, also those nobody waits for.",
            registry=registry,
        )
