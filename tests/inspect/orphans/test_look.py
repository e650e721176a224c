"""A look at a cluster id's volumes, against the strict EC2: what speaks for the cluster's life."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.ec2.calls import Ec2Calls
from provisioner.inspect.orphans.look import ClusterSide, look, look_at_own
from provisioner.inspect.orphans.orphan_plan_rules import signs_of_life
from provisioner.kube.resources import NODES
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.node import Node, NodeSpec
from provisioner.sandbox.strict_ec2.client import StrictEc2
from provisioner.sandbox.strict_ec2.instances import make_instances
from tests.builders import ZONE
from tests.cluster.hands import tag_list
from tests.sandbox.lab import client


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


class Nodes:
    """An API server that has these Nodes, or refuses to list them."""

    def __init__(self, *instances: str) -> None:
        self._nodes = [
            Node(spec=NodeSpec(provider_id=f"aws:///{ZONE}/{each}")) for each in instances
        ]

    async def list(self, resource: object, **_: object) -> Any:
        assert resource is NODES
        if not self._nodes:
            raise KubeError(Reason.FORBIDDEN, "cannot list nodes: ann may not")
        return SimpleNamespace(items=self._nodes)


async def test_a_living_cluster_whose_volume_was_taken_over_is_not_taken_for_this_one(
    strict_ec2: StrictEc2, aws_environment: None, monkeypatch: pytest.MonkeyPatch
):
    """No controller here tells its id, and one PersistentVolume names what ``prod`` has made."""
    monkeypatch.setenv("AWS_EC2_ENDPOINT", strict_ec2.endpoint)
    hand = client(strict_ec2.endpoint)
    calls = Ec2Calls.connect(region="us-east-1", metrics=Metrics(), read_timeout_s=5.0)
    own, others = (
        make_instances(
            strict_ec2.endpoint, 1, [ZONE], tags={f"kubernetes.io/cluster/{each}": "owned"}
        )
        for each in ("here", "prod")
    )
    of_here, of_prod = (
        hand.create_volume(
            AvailabilityZone=ZONE,
            Size=8,
            TagSpecifications=tag_list({f"kubernetes.io/cluster/{each}": "owned"}),
        )["VolumeId"]
        for each in ("here", "prod")
    )
    side = ClusterSide({of_here: "pv-1", of_prod: "pv-taken-over"}, frozenset(), {}, [])
    readers: Any = SimpleNamespace(cloud=SimpleNamespace(calls=calls))
    readers.cluster = SimpleNamespace(client=Nodes(own[0].instance_id))

    found = await look_at_own(readers, side)
    readers.cluster.client = Nodes()
    with pytest.raises(StorageError, match=r"no orphan can be told: .* ann may not"):
        await look_at_own(readers, side)
    told = await look_at_own(readers, replace(side, own_ids={"prod": "a controller runs with it"}))

    assert [each.around.cluster_id for each in found.seen] == ["here"]
    where = others[0].instance_id
    assert found.others == {"prod": f"instance {where} has its tag and is no node here"}
    assert [each.around.cluster_id for each in told.seen] == ["prod"]
    await calls.close()
