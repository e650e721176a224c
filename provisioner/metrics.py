"""What the processes measure; one registry a process, served at /metrics."""

from collections.abc import Iterator, Mapping
from math import nan

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from provisioner.model.errors import Reason
from provisioner.version import our_version

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class SharedMetrics:
    """The series of caches, queues, leases and EC2 calls, which every process of ours has.

    Args:
        leader: the name of the gauge for the lease. Each program has its own: an alert on the
            controller's must not be silenced by another program that leads something.
    """

    def __init__(self, leader: str = "ebs_provisioner_leader") -> None:
        self.registry = CollectorRegistry()
        self.flow_failures = self._counter(
            "flow_failures", "Failed steps, by flow and reason.", "flow", "reason"
        )
        self.ec2_calls = self._counter(
            "ec2_calls",
            "EC2 calls sent, by action and outcome (ok or the reason).",
            "action",
            "outcome",
        )
        self.ec2_seconds = self._histogram(
            "ec2_call_seconds", "Time until EC2 answered, by action.", "action"
        )
        self.ec2_throttles = self._counter(
            "ec2_throttles", "Calls that EC2 throttled, by action.", "action"
        )
        self.ec2_wait_seconds = self._counter(
            "ec2_limiter_wait_seconds",
            "Time that callers waited for the limiter, by action.",
            "action",
        )
        self.credentials = self._gauge(
            "aws_credentials_usable",
            "1 while there are AWS credentials and EC2 accepts them; NaN until they are needed.",
        )
        self.credentials.set(nan)  # 0 would be an alert where nobody has needed them yet
        self.queue_depth = self._gauge(
            "queue_depth", "Keys waiting or being worked on, by queue.", "queue"
        )
        self.watch_events = self._counter("watch_events", "Watch events received, by kind.", "kind")
        self.relists = self._counter("relists", "Full lists done, by kind.", "kind")
        self.unreadable = self._counter(
            "unreadable_objects", "Objects that could not be decoded, by kind.", "kind"
        )
        self.events_dropped = self._counter(
            "events_dropped", "Kubernetes Events that the rate limit or a full queue dropped."
        )
        self.leader = Gauge(
            leader, "1 while this process holds all leases.", registry=self.registry
        )
        self._gauge("build_info", "Always 1; the label has the version.", "version").labels(
            our_version()
        ).set(1)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"ebs_provisioner_{name}_total", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"ebs_provisioner_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(
            f"ebs_provisioner_{name}", text, labels, buckets=SECONDS, registry=self.registry
        )


class WrittenGauge(Collector):
    """A gauge with a series for each of very many things, written when they change.

    100,000 series take 71 MiB in a registry and 1.6 s to write in each scrape; as text, 14 MiB.

    Attributes:
        text: what /metrics shows of it; nothing before the first ``show``.
    """

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._name, self._help, self._labels = f"ebs_provisioner_{name}", text, labels
        self._amounts: Mapping[tuple[str, ...], float] = {}
        self.text = b""

    def show(self, amounts: Mapping[tuple[str, ...], float]) -> None:
        """Show these series, by the values of their labels, and no others; to run in a thread."""
        self._amounts = amounts
        self.text = generate_latest(self)
        self._amounts = {}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series that are being written."""
        family = GaugeMetricFamily(self._name, self._help, labels=self._labels)
        for values, amount in self._amounts.items():
            family.add_metric(values, amount)
        yield family


class Metrics(SharedMetrics):
    """All series of one controller; a new instance for each test."""

    def __init__(self) -> None:
        super().__init__()
        self.flow_seconds = self._histogram(
            "flow_seconds", "From the first look at an object to its end, by flow.", "flow"
        )
        self.in_transition = self._gauge(
            "in_transition", "What EC2 is looked at for again and again, by kind.", "kind"
        )
        self.modifications_waiting = self._gauge(
            "modifications_waiting",
            "Claims whose volume grows or changes only once EC2 allows another modification.",
        )
        self.move_phase_seconds = self._gauge(
            "move_phase_seconds",
            "How long the VolumeMove that is in a phase longest has been in it, by phase and by how"
            " its pods stop.",
            "phase",
            "consumers",
        )
        self.extra_tags = self._counter(
            "extra_tags",
            "Existing volumes that lacked extra tags, by what was done with them.",
            "outcome",
        )
        self.zone_refuses = self._gauge(
            "zone_refuses",
            "1 for as long as it is believed that a zone, or an Outpost, refuses a volume type.",
            "zone",
            "type",
            "reason",
        )
        self.volume_usd_per_month = WrittenGauge(
            "volume_usd_per_month",
            "List price of a volume for a month, with --volume-costs.",
            *("persistentvolume", "namespace", "claim"),
        )
        self.orphans = self._counter(
            "orphans", "Volumes without an owner, by what was done with them.", "outcome"
        )
        self.orphans_reported = self._gauge(
            "orphans_reported",
            "Volumes without an owner that the last sweeps found and left; NaN until one was"
            " found, or all volumes were looked at.",
        )
        self.orphans_reported.set(nan)  # 0 would say that there are none
        # Alerts look for an increase, and Prometheus sees none in a series that begins with 1.
        for outcome in ("deleted", "retained", "reported"):
            self.orphans.labels(outcome)
        for flow in ("provision", "modify", "snapshot"):
            self.flow_failures.labels(flow, Reason.QUOTA_EXCEEDED.value)
