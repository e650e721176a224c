"""What cannot be read is a gap, and what was read at different times is compared with care."""

from dataclasses import replace
from typing import Any, cast

import pytest

from provisioner.inspect.command_line import Readers
from provisioner.inspect.doctor import gather, probes
from provisioner.inspect.doctor.check_rules import Verdict
from provisioner.inspect.doctor.evidence_rules import Evidence
from provisioner.inspect.reading.aws import Aws
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.cluster import Cluster
from provisioner.kube.resources import ATTACHMENTS
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, KubeError, Reason
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import CLUSTER, SOUND, checked, with_cluster

IDENTITY = probes.Identity(e.DRIVER)
OF_EC2 = ("volumes-exist", "account", "instances", "attached-elsewhere", "hop-limit", "orphans")


def unanswered(found: probes.Found) -> Evidence:
    cloud, gaps, _, _ = found
    seen = with_cluster(cluster_id="prod")
    return replace(seen, cloud=cloud, gaps={what: each.message for what, each in gaps.items()})


async def test_without_a_region_nothing_of_ec2_is_judged():
    cloud = Cloud(None, Metrics())
    readers = Readers(cast("Cluster", None), cloud)

    found = checked(unanswered(await probes.ask(readers, CLUSTER, IDENTITY)))

    for each in OF_EC2:
        assert found[each].verdict is Verdict.UNKNOWN, found[each]


async def test_without_a_client_of_aws_nothing_of_ec2_is_judged(monkeypatch: pytest.MonkeyPatch):
    def refused(region: str) -> Aws:
        raise Ec2Error(Reason.CREDENTIALS_INVALID, f"no profile in {region}", action="connect")

    class Asked(Cloud):
        region = "us-east-1"

    monkeypatch.setattr(Aws, "of_caller", refused)
    readers = Readers(cast("Cluster", None), Asked(None, Metrics()))

    found = checked(unanswered(await probes.ask(readers, CLUSTER, IDENTITY)))

    for each in OF_EC2:
        assert found[each].verdict is Verdict.UNKNOWN, found[each]
        assert "no profile" in found[each].proof


class Client:
    """Lists VolumeAttachments once more, or cannot."""

    def __init__(self, answer: list[Any] | KubeError) -> None:
        self.answer = answer
        self.asked = 0

    async def list(self, resource: Any) -> Any:
        assert resource is ATTACHMENTS
        self.asked += 1
        if isinstance(self.answer, KubeError):
            raise self.answer

        class Listing:
            items = self.answer

        return Listing()


async def test_volume_attachments_are_read_again_before_one_is_missed():
    client = Client([e.attachment()])
    cluster = Cluster(cast("Any", client))

    seen = await gather.looked_again(cluster, with_cluster(attachments=[]))

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.OK
    assert client.asked == 1


async def test_nothing_is_read_again_where_all_agrees():
    client = Client([])

    assert await gather.looked_again(Cluster(cast("Any", client)), SOUND) is SOUND
    assert client.asked == 0


async def test_a_second_look_that_fails_leaves_it_unknown():
    client = Client(KubeError(Reason.TIMED_OUT, "no answer"))

    seen = await gather.looked_again(Cluster(cast("Any", client)), with_cluster(attachments=[]))

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.UNKNOWN
