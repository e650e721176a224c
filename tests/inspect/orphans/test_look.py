"""A look at a cluster id's volumes, against the strict EC2: what speaks for the cluster's life."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.ec2.calls import Ec2Calls
from provisioner.inspect.orphans.look import ClusterSide, look
from provisioner.inspect.orphans.orphan_plan_rules import signs_of_life
from provisioner.metrics import Metrics
from provisioner.sandbox.strict_ec2.client import StrictEc2
from provisioner.sandbox.strict_ec2.lab import client
from tests.builders import ZONE
from tests.cluster.hands import tag_list


async def test_a_cluster_whose_volume_a_persistent_volume_names_is_alive_by_any_of_its_tags(
    strict_ec2: StrictEc2, aws_environment: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_EC2_ENDPOINT", strict_ec2.endpoint)
    hand = client(strict_ec2.endpoint)
    calls = Ec2Calls.connect(region="us-east-1", metrics=Metrics(), read_timeout_s=5.0)
    readers: Any = SimpleNamespace(cloud=SimpleNamespace(calls=calls))
    for key in ("ebs.csi.aws.com/cluster-name", "KubernetesCluster"):
        cluster_id = f"by-{key[:3].lower()}"
        tags = tag_list({key: cluster_id})
        made = hand.create_volume(AvailabilityZone=ZONE, Size=8, TagSpecifications=tags)
        side = ClusterSide({made["VolumeId"]: "pv-1"}, frozenset(), {}, [])

        seen = await look(readers, side, cluster_id)
        elsewhere = await look(readers, side, "another")

        assert "pv-1" in " ".join(signs_of_life(seen.volumes, seen.around))
        assert signs_of_life(elsewhere.volumes, elsewhere.around) == []
    await calls.close()
