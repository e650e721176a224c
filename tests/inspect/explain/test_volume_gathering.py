"""Where a volume is attached, read from two sources that are not of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from provisioner.inspect.command_line import Readers
from provisioner.inspect.explain import volume_rules
from provisioner.inspect.explain.gathering.volume import Volumes
from provisioner.inspect.explain.view_rules import VolumeView
from provisioner.inspect.reading.cluster import Cluster
from provisioner.kube.resources import (
    ATTACHMENTS,
    NODES,
    PERSISTENT_VOLUMES,
    PLACED_VOLUMES,
    Resource,
)
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.errors import KubeError, Reason
from provisioner.model.volume import Volume
from tests.builders import DRIVER, INSTANCE, VOLUME
from tests.inspect.explain.views import (
    NODE,
    PV,
    attachment_of,
    claim_view,
    ebs,
    node_of,
    pv_of,
    view,
)
from tests.inspect.explain.views import first_causes as causes_of

OTHER_PV = "pv-of-the-same-volume"


class Api:
    """An API server; each listing of VolumeAttachments is the next one, then the last."""

    def __init__(self, *attachments: Sequence[Attachment], here: Sequence[Attachment] = ()) -> None:
        self.listings = [*attachments]
        self.here = [*here]  # each answer about the one of the node, the last again and again

    async def get(self, resource: Resource[Any], name: str, _namespace: str = "") -> Any:
        if resource is ATTACHMENTS and self.here:
            return self.here.pop(0) if len(self.here) > 1 else self.here[0]
        if resource in {PLACED_VOLUMES, PERSISTENT_VOLUMES} and name in {PV, OTHER_PV}:
            return pv_of(name=name)
        raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")

    async def list(self, resource: Resource[Any], **_: str) -> Any:
        if resource is ATTACHMENTS:
            found = self.listings.pop(0) if len(self.listings) > 1 else self.listings[0]
            return SimpleNamespace(items=found)
        return SimpleNamespace(items=[node_of()] if resource is NODES else [])


class Ec2:
    """Each answer about the volume is the next one, then the last."""

    region = "us-east-1"

    def __init__(self, *volumes: Volume) -> None:
        self.answers = [*volumes]

    async def volumes(self, ids: Iterable[str]) -> Mapping[str, Volume]:
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return dict.fromkeys(ids, found)

    async def modifications(self, _: Iterable[str]) -> Mapping[str, Any]:
        return {}

    async def instances(self, _: Iterable[str]) -> Mapping[str, Any]:
        return {}

    def misses(self, *_: str) -> bool:
        return False


async def read(api: Api, ec2: Ec2, *, node: str = "") -> VolumeView:
    readers = SimpleNamespace(cluster=Cluster(cast("Any", api)), cloud=ec2)
    return await Volumes(cast("Readers", readers), DRIVER).view(PV, node=node, whole=not node)


def causes_of_pod(found: VolumeView) -> list[str]:
    """Of a running pod of the volume."""
    return causes_of(view("pod", claims=(claim_view("Bound", volume=found),)))


def causes(found: VolumeView) -> list[str]:
    return causes_of(view("pv", volume=found))


async def test_what_nobody_asks_for_is_foreign():
    assert causes(await read(Api([]), Ec2(ebs()))) == ["VolumeInUse"]


async def test_a_detach_that_ends_between_the_two_readings_is_not_foreign():
    """EC2 was read while the volume was attached, the VolumeAttachments after they had gone."""
    assert causes(await read(Api([]), Ec2(ebs(), ebs(on="")))) == []


async def test_an_attach_that_begins_between_the_two_readings_is_not_foreign():
    later = attachment_of(attached=True)
    assert causes(await read(Api([], [later]), Ec2(ebs()))) == []


async def test_what_another_persistent_volume_asks_for_is_not_foreign():
    """By the other one's handle: the stock driver notes no volume at its VolumeAttachments."""
    other = attachment_of(attached=True, persistent_volume=OTHER_PV, annotations={})
    found = await read(Api([other]), Ec2(ebs()))
    assert [*found.wanted] == [NODE]
    assert causes(found) == []


async def test_a_volume_with_a_namesake_in_use_is_never_to_be_detached():
    mine = attachment_of("node-2", annotations={})
    other = attachment_of(attached=True, persistent_volume=OTHER_PV)
    found = await read(Api([mine, other]), Ec2(ebs()))
    (chain,) = volume_rules.faults(view("pv"), found)
    assert chain.cause is Reason.VOLUME_IN_USE
    assert "detach-volume" not in chain.links[0].command
    assert OTHER_PV in chain.links[0].proof.where
    assert VOLUME in chain.links[0].sentence


HERE = attachment_of(attached=True, annotations={NODE_ID: INSTANCE})


async def test_a_volume_that_ec2_does_not_have_on_the_node_is_looked_at_twice():
    """It came to the node after EC2 was asked, and before the API server was."""
    api = Api([HERE], here=[HERE])
    assert causes_of_pod(await read(api, Ec2(ebs(on=""), ebs()), node=NODE)) == []


async def test_a_volume_that_leaves_the_node_between_the_readings_was_not_taken_away():
    leaving = attachment_of(attached=True, deleting=True, annotations={NODE_ID: INSTANCE})
    api = Api([leaving], here=[HERE, leaving])
    assert causes_of_pod(await read(api, Ec2(ebs(on="")), node=NODE)) == []


async def test_what_ec2_does_not_have_at_the_second_look_either_was_detached_by_hand():
    api = Api([HERE], here=[HERE])
    found = await read(api, Ec2(ebs(on="")), node=NODE)
    assert causes_of_pod(found) == ["AttachmentUnknownToEc2"]
