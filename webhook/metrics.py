"""What ``ebs-webhook`` measures, besides what every process of ours does."""

from math import nan

from prometheus_client import Counter, Gauge, Histogram

from provisioner.metrics import SharedMetrics

# A review from memory takes less than a millisecond, one that asks EC2 some hundred of them.
_REVIEW_SECONDS = (
    0.00025,
    0.0005,
    0.001,
    0.0015,
    0.002,
    0.004,
    0.008,
    0.016,
    0.032,
    0.064,
    0.125,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)


class WebhookMetrics(SharedMetrics):
    """All series of one webhook process; informers and EC2 calls count in those it inherits."""

    def __init__(self) -> None:
        super().__init__(leader="ebs_webhook_leader")
        self._reviews()
        self._connections()
        self._background()

    def _reviews(self) -> None:
        registry = self.registry
        self.reviews = Counter(
            "ebs_webhook_reviews_total",
            "Reviews answered, by path, outcome (allowed, patched, denied) and reason. Without a"
            " rule: InternalError, BudgetExhausted, Overloaded and TooManyParts.",
            ["path", "outcome", "reason"],
            registry=registry,
        )
        self.review_seconds = Histogram(
            "ebs_webhook_review_seconds",
            "Time from a complete request to its answer, by path.",
            ["path"],
            buckets=_REVIEW_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "ebs_webhook_reviews_in_flight", "Reviews in progress.", registry=registry
        )
        self.refused_requests = Counter(
            "ebs_webhook_refused_requests_total",
            "HTTP requests that were not a review, by status.",
            ["status"],
            registry=registry,
        )

    def _connections(self) -> None:
        registry = self.registry
        self.connections = Gauge(
            "ebs_webhook_connections",
            "Open connections, including those in a handshake.",
            registry=registry,
        )
        self.connections_ended = Counter(
            "ebs_webhook_connections_ended_total",
            "Connections that the webhook closed early, by reason (HandshakeFailed, Evicted,"
            " Refused).",
            ["reason"],
            registry=registry,
        )

    def _background(self) -> None:
        registry = self.registry
        self.lookups = Counter(
            "ebs_webhook_lookups_total",
            "Lookups of a volume's zone, by source (cache, ec2) and outcome"
            " (found, missing, doubt).",
            ["source", "outcome"],
            registry=registry,
        )
        self.live_reads = Counter(
            "ebs_webhook_live_reads_total",
            "Reads that checked a denial decided from the cache, by outcome (confirmed,"
            " overturned, failed).",
            ["outcome"],
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "ebs_webhook_certificate_expiry_timestamp_seconds",
            "Expiry of the served certificate, in Unix time; NaN while there is none.",
            registry=registry,
        )
        self.certificate_expiry.set(nan)  # 0 would be an alert for having just begun
        self.certificate_steps = Counter(
            "ebs_webhook_certificate_steps_total",
            "Steps of certificate rotation, by step and outcome.",
            ["step", "outcome"],
            registry=registry,
        )
        self.repairs = Counter(
            "ebs_webhook_repairs_total",
            "PersistentVolumes checked by the reconciler, by outcome.",
            ["outcome"],
            registry=registry,
        )
