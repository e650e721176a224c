"""What cannot be read is a gap, and what was read at different times is compared with care."""

from dataclasses import replace
from typing import Any, cast

import pytest

from provisioner.inspect.command_line import Readers, Target
from provisioner.inspect.doctor import gather, probes
from provisioner.inspect.doctor.check_rules import Verdict
from provisioner.inspect.doctor.class_rules import SNAPSHOT_LEASE
from provisioner.inspect.doctor.evidence_rules import Evidence
from provisioner.inspect.reading.aws import Aws
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.setup_kind_rules import SeenLease
from provisioner.kube.resources import ATTACHMENTS, PLACED_VOLUMES, Resource
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, KubeError, Reason
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import CLUSTER, SOUND, a_volume, checked, with_cluster
from tests.inspect.lease_api import LeaseApi

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
    """Lists objects of a kind once more, or cannot."""

    def __init__(self, answer: list[Any] | KubeError, kind: Resource[Any] = ATTACHMENTS) -> None:
        self.answer = answer
        self.kind = kind
        self.asked = 0

    async def list(self, resource: Any) -> Any:
        assert resource is self.kind
        self.asked += 1
        if isinstance(self.answer, KubeError):
            raise self.answer

        class Listing:
            items = self.answer

        return Listing()


async def gathered(api: LeaseApi) -> Evidence:
    """By clocks that agree."""
    target = Target(None, None, namespace="", driver=e.DRIVER, region=None)
    readers = Readers(Cluster(cast("Any", api)), Cloud(None, Metrics()))
    answer = await gather.gather(readers, gather.Question(target, IDENTITY))
    return replace(answer.seen, now=e.NOW, clocks=[])


def leases_in(namespace: str, **values: Any) -> list[SeenLease]:
    return [e.lease(each, namespace=namespace, **values) for each in e.leases()]


async def test_the_lease_of_the_snapshot_controller_is_no_competitor():
    snapshots = e.lease(SNAPSHOT_LEASE, "snapshot-controller-7")
    seen = await gathered(LeaseApi(*leases_in("kube-system"), snapshots))

    assert seen.cluster.snapshot_lease == snapshots
    assert checked(seen)["leases-one-holder"].verdict is Verdict.OK
    assert "snapshot-controller" not in checked(seen)["leases-held"].proof


async def test_the_leases_of_a_removed_driver_hide_no_controller():
    both = (*leases_in("kube-system", ago_s=9000.0), *leases_in("storage"))

    seen = checked(await gathered(LeaseApi(*both)))["leases-held"]
    assert (seen.verdict, seen.proof) == (Verdict.OK, f"held by {e.HOLDER} in storage")
    unseen = checked(await gathered(LeaseApi(*both, lists=False)))["leases-held"]
    assert unseen.verdict is Verdict.FAILED
    assert "--lease-namespace" in unseen.remedy


async def test_without_any_lease_nothing_is_said_where_others_cannot_be_listed():
    for lists, verdict in ((True, Verdict.FAILED), (False, Verdict.UNKNOWN)):
        seen = await gathered(LeaseApi(lists=lists))
        assert checked(seen)["leases-held"].verdict is verdict


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


WITHOUT_ITS_VOLUME = with_cluster(volumes=[e.persistent_volume(), a_volume("pv-2", "vol-2")])


async def test_a_volume_that_was_deleted_between_two_looks_is_not_missed():
    client = Client([e.persistent_volume()], PLACED_VOLUMES)

    seen = await gather.looked_again(Cluster(cast("Any", client)), WITHOUT_ITS_VOLUME)

    assert checked(seen)["volumes-exist"].verdict is Verdict.OK
    assert client.asked == 1


async def test_a_volume_whose_persistent_volume_stays_is_missed():
    client = Client(list(WITHOUT_ITS_VOLUME.cluster.volumes), PLACED_VOLUMES)

    seen = await gather.looked_again(Cluster(cast("Any", client)), WITHOUT_ITS_VOLUME)

    assert checked(seen)["volumes-exist"].verdict is Verdict.FAILED


async def test_volumes_that_cannot_be_looked_for_again_are_not_missed():
    client = Client(KubeError(Reason.TIMED_OUT, "no answer"), PLACED_VOLUMES)

    seen = await gather.looked_again(Cluster(cast("Any", client)), WITHOUT_ITS_VOLUME)

    assert checked(seen)["volumes-exist"].verdict is Verdict.UNKNOWN
