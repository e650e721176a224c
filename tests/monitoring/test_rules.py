"""The rules of manifests/monitoring, run by Prometheus' own promtool on series made up for it."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import DOCS, anchors

Json = dict[str, Any]
FILE = Path(__file__).parents[2] / "manifests/monitoring/prometheus-rule.yaml"
SPEC: Json = yaml.safe_load(FILE.read_text())["spec"]
RULES: list[Json] = [rule for group in SPEC["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDS = [rule for rule in RULES if "record" in rule]

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing (Debian: prometheus)"
)

FAILURES = "ebs_provisioner_flow_failures_total"
EXPIRY = "ebs_webhook_certificate_expiry_timestamp_seconds"
MOVES = "ebs_provisioner_move_phase_seconds"
REVIEWS = "ebs_webhook_reviews_total"
FAILED_OPEN = "apiserver_admission_webhook_fail_open_count"
# Alert: series at one sample a minute, from the start on, with which it fires; the time at which it
# does and, a step before, does not yet; and series with which it never does.
CASES: dict[str, tuple[Json, str, str, Json]] = {
    "EBSNoLeader": (
        {'ebs_provisioner_leader{pod="a"}': "0x60", 'ebs_provisioner_leader{pod="b"}': "0x60"},
        "4m",
        "6m",
        {'ebs_provisioner_leader{pod="a"}': "0x60", 'ebs_provisioner_leader{pod="b"}': "1x60"},
    ),
    "EBSCredentialsUnusable": (
        {'ebs_provisioner_aws_credentials_usable{instance="a"}': "0x60"},
        "4m",
        "6m",
        {'ebs_provisioner_aws_credentials_usable{instance="a"}': "1x60"},
    ),
    "EBSQuotaExceeded": (
        {f'{FAILURES}{{flow="provision",reason="QuotaExceeded"}}': "0+1x60"},
        "3m",
        "10m",
        {f'{FAILURES}{{flow="provision",reason="ZoneFull"}}': "0+1x60"},
    ),
    "EBSZoneRefusesVolumes": (
        {'ebs_provisioner_zone_refuses{zone="us-east-1a",type="gp3",reason="ZoneFull"}': "1x60"},
        "14m",
        "16m",
        {'ebs_provisioner_zone_refuses{zone="us-east-1a",type="gp3",reason="ZoneFull"}': "0x60"},
    ),
    "EBSAttachmentsFail": (
        {f'{FAILURES}{{flow="attach",reason="EC2Error"}}': "0+1x60"},
        "14m",
        "17m",
        # A failure that is retried with success.
        {f'{FAILURES}{{flow="attach",reason="EC2Error"}}': "0x5 1x55"},
    ),
    "EBSThrottled": (
        {'ebs_provisioner_ec2_throttles_total{action="CreateVolume"}': "0+1x60"},
        "29m",
        "32m",
        {'ebs_provisioner_ec2_throttles_total{action="CreateVolume"}': "7x60"},
    ),
    "EBSModificationsWait": (
        {"ebs_provisioner_modifications_waiting": "2x400"},
        "359m",
        "361m",
        {"ebs_provisioner_modifications_waiting": "2x300 0x100"},
    ),
    "EBSVolumeMoveWaits": (
        {f'{MOVES}{{phase="Held",consumers="Restart"}}': "0+60x60"},
        "30m",
        "31m",
        # One that waits for its user, and a large snapshot.
        {
            f'{MOVES}{{phase="Held",consumers="Wait"}}': "0+60x60",
            f'{MOVES}{{phase="Snapshotting",consumers="Restart"}}': "0+60x60",
        },
    ),
    "EBSOrphansReported": (
        {'ebs_provisioner_orphans_reported{pod="a"}': "0x30 2x30"},
        "29m",
        "32m",
        {
            'ebs_provisioner_orphans_reported{pod="a"}': "0x60",
            'ebs_provisioner_orphans_reported{pod="b"}': " ".join(["NaN"] * 60),
        },
    ),
    "EBSNodePluginNotRegistered": (
        {'ebs_provisioner_node_registered{instance="a"}': "0x60"},
        "9m",
        "11m",
        {'ebs_provisioner_node_registered{instance="a"}': "1x60"},
    ),
    "EBSNodePluginAway": (
        {
            'up{job="any",instance="a"}': "1x5 0x60",
            'ebs_provisioner_node_registered{job="any",instance="a"}': "1x5 stale",
        },
        "15m",
        "17m",
        # Another program of the same job.
        {
            'up{job="any",instance="a"}': "1x60",
            'ebs_provisioner_node_registered{job="any",instance="a"}': "1x60",
            'up{job="any",instance="b"}': "0x60",
        },
    ),
    "EBSVolumeUnreadable": (
        {'ebs_provisioner_node_volume_unreadable{namespace="n",claim="c"}': "1x60"},
        "4m",
        "6m",
        {'ebs_provisioner_node_volume_unreadable{namespace="n",claim="c"}': "0x60"},
    ),
    "EBSFileSystemDoesNotGrow": (
        {'ebs_provisioner_node_growths_failed{instance="a"}': "1x60"},
        "4m",
        "6m",
        {'ebs_provisioner_node_growths_failed{instance="a"}': "0x60"},
    ),
    "EBSWebhookCertificateExpires": (
        # Thirteen days after the time 0 at which promtool begins.
        {f'{EXPIRY}{{instance="a"}}': f"{13 * 86400}x120"},
        "59m",
        "62m",
        {f'{EXPIRY}{{instance="a"}}': f"{80 * 86400}x120"},
    ),
    "EBSWebhookAway": (
        {f'{FAILED_OPEN}{{name="pods.ebs-provisioner.io",type="validating"}}': "0+1x60"},
        "3m",
        "10m",
        {f'{FAILED_OPEN}{{name="pods.example.com",type="validating"}}': "0+1x60"},
    ),
    "EBSWebhookReviewsUnchecked": (
        {f'{REVIEWS}{{path="/validate/pods",outcome="allowed",reason="Overloaded"}}': "0+1x60"},
        "3m",
        "10m",
        {f'{REVIEWS}{{path="/validate/pods",outcome="allowed",reason="Fits"}}': "0+1x60"},
    ),
}


def series(values: Json) -> list[Json]:
    return [{"series": name, "values": each} for name, each in values.items()]


def firing(values: Json, at: str, query: str) -> list[Json]:
    """A test of promtool that expects no sample: what it says of one that has some."""
    return [
        {
            "interval": "1m",
            "input_series": series(values),
            "promql_expr_test": [{"expr": query, "eval_time": at, "exp_samples": []}],
        }
    ]


def run(folder: Path, tests: list[Json]) -> subprocess.CompletedProcess[str]:
    """Have promtool run these tests."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(SPEC))
    (folder / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    command = ["promtool", "test", "rules", "test.yaml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def fires(folder: Path, alert: str, values: Json, at: str) -> bool:
    """Whether an alert fires then."""
    query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    done = run(folder, firing(values, at, query))
    said = done.stdout + done.stderr
    assert "SUCCESS" in said or "got:" in said, said
    return done.returncode != 0


@promtool
def test_promtool_finds_nothing_wrong_with_them(tmp_path: Path):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(SPEC))

    done = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


def test_each_alert_has_its_case():
    assert CASES.keys() == ALERTS.keys()


@promtool
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_in_time_and_not_before_and_not_without_its_reason(
    alert: str, tmp_path: Path
):
    fault, before, at, calm = CASES[alert]

    assert not fires(tmp_path, alert, fault, before)
    assert fires(tmp_path, alert, fault, at)
    assert not fires(tmp_path, alert, calm, at)


@promtool
def test_a_certificate_that_is_not_served_is_told_of_too(tmp_path: Path):
    values = {f'{EXPIRY}{{instance="a"}}': " ".join(["NaN"] * 120)}

    assert fires(tmp_path, "EBSWebhookCertificateExpires", values, "62m")


@promtool
@pytest.mark.parametrize(("after", "is_stuck"), [("23h55m", False), ("24h5m", True)])
def test_a_move_may_take_a_snapshot_for_a_day(after: str, tmp_path: Path, *, is_stuck: bool):
    values = {f'{MOVES}{{phase="Snapshotting",consumers="Restart"}}': "0+60x1500"}

    assert fires(tmp_path, "EBSVolumeMoveWaits", values, after) is is_stuck


@promtool
def test_no_controller_at_all_is_no_leader(tmp_path: Path):
    assert fires(tmp_path, "EBSNoLeader", {"up": "1x60"}, "6m")


@promtool
def test_a_node_plugin_that_has_never_answered_is_found_by_its_pod(tmp_path: Path):
    values = {'up{job="pods",pod="ebs-provisioner-node-x7k2p",instance="a"}': "0x60"}

    assert fires(tmp_path, "EBSNodePluginAway", values, "11m")
    other = {'up{job="pods",pod="ebs-provisioner-5d9f",instance="a"}': "0x60"}
    assert not fires(tmp_path, "EBSNodePluginAway", other, "11m")


@promtool
@pytest.mark.parametrize(
    ("other_replica", "is_away"), [("1x10 stale", True), ("1x60", False)], ids=["none", "one"]
)
def test_a_webhook_is_away_once_no_replica_of_it_answers_prometheus(
    tmp_path: Path, other_replica: str, *, is_away: bool
):
    values = {f'{EXPIRY}{{instance="a"}}': "1x5 stale", f'{EXPIRY}{{instance="b"}}': other_replica}

    assert not fires(tmp_path, "EBSWebhookAway", values, "15m")
    assert fires(tmp_path, "EBSWebhookAway", values, "17m") is is_away


@promtool
def test_a_webhook_that_was_never_there_is_not_missed(tmp_path: Path):
    assert not fires(tmp_path, "EBSWebhookAway", {"up": "1x60"}, "30m")


@promtool
@pytest.mark.parametrize("rule", RECORDS, ids=[rule["record"] for rule in RECORDS])
def test_a_name_of_the_stock_driver_has_the_samples_of_ours(rule: Json, tmp_path: Path):
    [ours] = re.findall(r"ebs_provisioner_\w+", rule["expr"])
    labels = 'action="CreateVolume",outcome="Throttled",volume_id="vol-1",reason="Throttled"'
    for label, usual in (("limit_of", "volume"), ("flow", "provision")):
        [value] = set(re.findall(f'[{{]{label}="(\\w+)"', rule["expr"])) or {usual}
        labels += f',{label}="{value}"'

    query = f"count({rule['record']})"
    done = run(tmp_path, firing({f"{ours}{{{labels}}}": "0+1x10"}, "5m", query))

    assert "got:" in done.stdout + done.stderr, done.stdout + done.stderr


def test_every_metric_is_one_that_the_page_of_metrics_has():
    page = (DOCS / "reference/metrics.md").read_text()
    used = {
        name
        for rule in RULES
        for name in re.findall(
            r"\bebs_(?:provisioner_node|provisioner|webhook)_(\w+)", rule["expr"]
        )
    }

    assert len(used) > 15
    assert [each for each in used if re.sub(r"_(bucket|count|sum)$", "", each) not in page] == []


def test_each_alert_says_what_it_means_and_has_its_runbook():
    found = anchors((DOCS / "alerts.md").read_text())

    for name, rule in ALERTS.items():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (page, anchor) == ("docs/alerts.md", name.lower())
        assert anchor in found
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
