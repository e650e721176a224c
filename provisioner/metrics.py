"""What the processes measure; one registry a process, served at /metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class SharedMetrics:
    """The series of caches, queues, leases and EC2 calls, which every process of ours has."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.flow_failures = Counter(
            "ebs_provisioner_flow_failures_total",
            "Failed steps, by flow and reason.",
            ["flow", "reason"],
            registry=registry,
        )
        self.ec2_calls = Counter(
            "ebs_provisioner_ec2_calls_total",
            "EC2 calls sent, by action and outcome (ok or the reason).",
            ["action", "outcome"],
            registry=registry,
        )
        self.ec2_seconds = Histogram(
            "ebs_provisioner_ec2_call_seconds",
            "Time until EC2 answered, by action.",
            ["action"],
            buckets=SECONDS,
            registry=registry,
        )
        self.ec2_throttles = Counter(
            "ebs_provisioner_ec2_throttles_total",
            "Calls that EC2 throttled, by action.",
            ["action"],
            registry=registry,
        )
        self.ec2_wait_seconds = Counter(
            "ebs_provisioner_ec2_limiter_wait_seconds_total",
            "Time that callers waited for the limiter, by action.",
            ["action"],
            registry=registry,
        )
        self.credentials = Gauge(
            "ebs_provisioner_aws_credentials_usable",
            "1 while there are AWS credentials and EC2 accepts them.",
            registry=registry,
        )
        self.queue_depth = Gauge(
            "ebs_provisioner_queue_depth",
            "Keys waiting or being worked on, by queue.",
            ["queue"],
            registry=registry,
        )
        self.watch_events = Counter(
            "ebs_provisioner_watch_events_total",
            "Watch events received, by kind.",
            ["kind"],
            registry=registry,
        )
        self.relists = Counter(
            "ebs_provisioner_relists_total",
            "Full lists done, by kind.",
            ["kind"],
            registry=registry,
        )
        self.unreadable = Counter(
            "ebs_provisioner_unreadable_objects_total",
            "Objects that could not be decoded, by kind.",
            ["kind"],
            registry=registry,
        )
        self.events_dropped = Counter(
            "ebs_provisioner_events_dropped_total",
            "Kubernetes Events that the rate limit or a full queue dropped.",
            registry=registry,
        )
        self.leader = Gauge(
            "ebs_provisioner_leader",
            "1 while this process holds all leases.",
            registry=registry,
        )


class Metrics(SharedMetrics):
    """All series of one controller; a new instance for each test."""

    def __init__(self) -> None:
        super().__init__()
        self.flow_seconds = Histogram(
            "ebs_provisioner_flow_seconds",
            "From the first look at an object to its end, by flow.",
            ["flow"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.in_transition = Gauge(
            "ebs_provisioner_in_transition",
            "What EC2 is looked at for again and again, by kind.",
            ["kind"],
            registry=self.registry,
        )
        self.modifications_waiting = Gauge(
            "ebs_provisioner_modifications_waiting",
            "Claims whose volume grows or changes only once EC2 allows another modification.",
            registry=self.registry,
        )
        self.extra_tags = Counter(
            "ebs_provisioner_extra_tags_total",
            "Existing volumes that lacked extra tags, by what was done with them.",
            ["outcome"],
            registry=self.registry,
        )
        self.zone_refuses = Gauge(
            "ebs_provisioner_zone_refuses",
            "1 for as long as it is believed that a zone, or an Outpost, refuses a volume type.",
            ["zone", "type", "reason"],
            registry=self.registry,
        )
        self.orphans = Counter(
            "ebs_provisioner_orphans_total",
            "Volumes without an owner, by what was done with them.",
            ["outcome"],
            registry=self.registry,
        )
