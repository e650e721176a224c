"""What docs say of the webhook against what the code has."""

from __future__ import annotations

import re
from math import isnan
from pathlib import Path
from typing import Any

import yaml

from provisioner.metrics import Metrics
from tests.documents import first_column, page, section
from webhook.cli import serve
from webhook.metrics import WebhookMetrics
from webhook.model import pod as pods
from webhook.model.cluster_view import ClaimView, ClusterView, VolumeView
from webhook.repairs.flow import FOUGHT_OVER, WRONG_AFFINITY
from webhook.reviews import persistent_volume_rules, pod_rules
from webhook.reviews.persistent_volume_rules import Found

MANIFESTS = Path(__file__).parents[2] / "manifests"
A, B = "us-east-1a", "us-east-1b"
FILMS, MUSIC = "vol-d151bd0c9016fe3d5", "vol-1c9eb3dd1cc561487"


def test_every_option_is_in_the_table_and_no_other():
    options = {name for each in serve.params for name in (*each.opts, *each.secondary_opts)}

    told = first_column(section("reference/options", "Webhook"), "--[a-z0-9-]+")
    assert told == options - {"--help"}


def test_the_kustomization_to_begin_with_fits_the_manifests():
    shown, *_ = re.findall(r"```yaml\n(.+?)```", section("webhook", "Install"), re.DOTALL)
    mine = yaml.safe_load(shown)
    base = yaml.safe_load((MANIFESTS / "webhook/kustomization.yaml").read_text())

    assert mine["resources"] == ["../manifests/webhook"]
    assert [each["name"] for each in mine["images"]] == [each["name"] for each in base["images"]]
    assert set(mine) == {"resources", "images"}  # nothing else has to be told


def test_every_metric_is_in_the_table_and_no_other():
    families = [
        each for each in WebhookMetrics().registry.collect() if each.name.startswith("ebs_webhook_")
    ]
    named = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}

    listed = first_column(section("reference/metrics", "Webhook"), "[a-z0-9_]+")
    assert {f"ebs_webhook_{each}" for each in listed} == named


def test_what_only_the_controller_measures_is_not_exported():
    named = {each.name for each in WebhookMetrics().registry.collect()}
    of_the_controller = {each.name for each in Metrics().registry.collect()} - named

    assert of_the_controller == {
        "ebs_provisioner_extra_tags",
        "ebs_provisioner_flow_seconds",
        "ebs_provisioner_in_transition",
        "ebs_provisioner_leader",
        "ebs_provisioner_modifications_waiting",
        "ebs_provisioner_move_phase_seconds",
        "ebs_provisioner_orphans",
        "ebs_provisioner_orphans_reported",
        "ebs_provisioner_zone_refuses",
    }


def test_before_a_certificate_is_served_its_expiry_is_unknown_and_not_long_ago():
    expiry = "ebs_webhook_certificate_expiry_timestamp_seconds"

    assert isnan(WebhookMetrics().registry.get_sample_value(expiry) or 0.0)


def test_the_events_are_called_so():
    for reason in (WRONG_AFFINITY, FOUGHT_OVER):
        assert f"`{reason}`" in page("webhook")
        assert f"`{reason}`" in section("reference/events", "Events")


def quotations() -> list[str]:
    return re.findall(r"^> (.+)$", page("webhook"), re.MULTILINE)


def test_the_refusal_of_a_persistent_volume_is_quoted_as_it_is():
    within = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [B]}
    terms = [{"matchExpressions": [within]}]
    volume: dict[str, Any] = {
        "metadata": {"name": "films"},
        "spec": {
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": FILMS},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }

    answer = persistent_volume_rules.validate(volume, Found(A), strict=False)

    assert answer.message == quotations()[0]


def test_the_refusal_of_a_pod_is_quoted_as_it_is():
    names = ("films", "music")
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    cluster = ClusterView(
        claims={f"default/{name}": ClaimView(name, "", name) for name in names},
        volumes={
            "films": VolumeView(FILMS, frozenset({A}), "default", "films"),
            "music": VolumeView(MUSIC, frozenset({B}), "default", "music"),
        },
    )
    player = {"metadata": {"name": "player"}, "spec": {"volumes": volumes}}

    answer = pod_rules.judge(pods.read(player), cluster, namespace="default").answer

    assert answer.message == quotations()[1]
