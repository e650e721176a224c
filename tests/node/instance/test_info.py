"""What kubelet is told of a node: id, topology, and how many volumes of ours fit, now."""

import asyncio
from typing import cast

import pytest

from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import NodeError, Reason
from provisioner.node.instance.attachments import AttachmentLookups
from provisioner.node.instance.info import ForeignVolumes, Info
from provisioner.node.instance.kube import NodeKube
from provisioner.node.instance.metadata import Imds, Metadata
from provisioner.node.instance.volume_limit_rules import LimitOptions
from provisioner.node.runtime.sysfs import SystemDirs
from provisioner.sandbox.real_node.imds import InstanceMetadata, serving
from tests.node.kube_server import ATTACHMENTS

pytest_plugins = ("tests.node.kube_fixtures",)

ANNOTATION = "ebs-provisioner.io/attachment-limit"


class Machine:
    """An instance, the volumes that it sees, and the plugin's view of it."""

    def __init__(self, kube, imds, service, folder):
        self.service = service
        self.seen = {"vol-root"}
        self.kube = kube
        self.metadata = Metadata(imds, kube, SystemDirs(sys=folder), wait_s=0.0)
        self.believed_s = 300.0
        self.foreign_s = 300.0
        self.start()

    def start(self, note_believed_s=0.0, **options):
        """As if the process had been started."""

        async def see() -> frozenset[str]:
            return frozenset(self.seen)

        self.attachments = AttachmentLookups(self.kube, foreign_s=self.foreign_s)
        foreign = ForeignVolumes(
            self.kube, self.attachments, self.metadata, see, believed_s=self.believed_s
        )
        self.info = Info(
            self.kube,
            self.metadata,
            foreign,
            LimitOptions(**options),
            note_believed_s=note_believed_s,
        )

    async def fitting(self):
        return (await self.info.get()).max_volumes


@pytest.fixture
async def machine(kube, kube_server, tmp_path):
    kube_server.has_node()
    service = InstanceMetadata("i-0a1b", "m5.large", "us-east-1a")  # 27 shared
    async with serving(service) as url, Imds(url, pauses_s=()) as imds:
        yield Machine(kube, imds, service, tmp_path)


async def test_an_instance_and_where_it_is(machine):
    found = await machine.info.get()

    assert found.node_id == "i-0a1b"
    assert found.max_volumes == 26
    assert found.segments == {
        "topology.kubernetes.io/zone": "us-east-1a",
        "topology.ebs.csi.aws.com/zone": "us-east-1a",
        "kubernetes.io/os": "linux",
    }


async def test_volumes_of_ours_take_no_place_of_their_own(machine, kube_server):
    machine.seen |= {"vol-1", "vol-2"}
    kube_server.has_attachment("vol-1")
    kube_server.has_node(status={"volumesInUse": ["kubernetes.io/csi/ebs.csi.aws.com^vol-2"]})

    assert await machine.fitting() == 26


async def test_after_a_reboot_with_volumes_attached_the_answer_is_the_same(machine, kube_server):
    machine.seen |= {"vol-1", "vol-2", "vol-logs"}
    kube_server.has_attachment("vol-1")
    kube_server.has_attachment("vol-2")
    assert await machine.fitting() == 25

    machine.start()

    assert await machine.fitting() == 25


async def test_volumes_that_come_and_go_are_noticed(machine):
    assert await machine.fitting() == 26

    machine.seen |= {"vol-x", "vol-y"}
    assert await machine.fitting() == 24

    machine.seen -= {"vol-x"}
    assert await machine.fitting() == 25


async def test_an_attachment_to_another_node_explains_nothing(machine, kube_server):
    machine.seen.add("vol-1")
    kube_server.has_attachment("vol-1", node="node-2")

    assert await machine.fitting() == 25


async def test_interfaces_that_come_and_go_are_noticed(machine):
    machine.service.macs += ["02:00:00:00:00:02", "02:00:00:00:00:03"]
    assert await machine.fitting() == 24

    machine.service.macs.pop()
    assert await machine.fitting() == 25


async def test_interfaces_are_not_asked_for_where_they_take_no_place(machine):
    machine.service.instance_type = "m7i.large"
    machine.service.macs.clear()

    assert await machine.fitting() == 31


async def test_at_rest_the_api_server_is_not_asked(machine, kube_server):
    machine.seen.add("vol-1")
    kube_server.has_attachment("vol-1")
    await machine.fitting()
    kube_server.asked.clear()

    for _ in range(3):
        await machine.fitting()

    assert kube_server.asked == []


async def test_after_five_minutes_the_node_is_read_and_nothing_else(machine, kube_server):
    """Ten thousand nodes do so: one request each, however many volumes of ours are attached."""
    machine.believed_s = 0.0
    machine.start()
    ours = {"vol-1", "vol-2"}
    machine.seen |= ours
    attached = [{"name": f"kubernetes.io/csi/{EBS_DRIVER}^{each}"} for each in ours]
    kube_server.has_node(status={"volumesAttached": attached})
    await machine.fitting()
    kube_server.asked.clear()

    await machine.fitting()

    kinds = [path.split("/")[-2] for path, _, _ in kube_server.asked]
    assert kinds == ["nodes"]


async def test_a_node_without_volumes_of_ours_is_read_no_more(machine, kube_server):
    machine.believed_s = 0.0
    machine.start()
    await machine.fitting()
    kube_server.asked.clear()

    assert await machine.fitting() == 26
    assert kube_server.asked == []


async def test_a_foreign_volume_that_becomes_ours_is_noticed_later(machine, kube_server):
    machine.foreign_s = 0.0
    machine.start()
    machine.seen.add("vol-1")
    assert await machine.fitting() == 25

    kube_server.has_attachment("vol-1")
    assert await machine.fitting() == 26


async def test_a_foreign_volume_that_becomes_ours_is_noticed_when_it_is_staged(
    machine, kube_server
):
    machine.seen.add("vol-1")
    assert await machine.fitting() == 25
    kube_server.has_attachment("vol-1")
    assert await machine.fitting() == 25

    machine.attachments.ask_again("vol-1")

    assert await machine.fitting() == 26


@pytest.mark.parametrize("happens", ["it is staged", "it is away for a moment"])
async def test_a_lookup_that_began_before_it_became_ours_does_not_make_a_volume_foreign(happens):
    class Kube:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def attachment(self, _):
            self.asked.set()
            await self.answer.wait()

    kube = Kube()
    attachments = AttachmentLookups(cast("NodeKube", kube))
    lookup = asyncio.create_task(attachments.find("vol-1"))
    await kube.asked.wait()

    if happens == "it is staged":
        attachments.ask_again("vol-1")
    else:
        attachments.keep([])
    kube.answer.set()

    assert await lookup is None
    assert not attachments.is_foreign("vol-1")
    assert await attachments.find("vol-1") is None
    assert attachments.is_foreign("vol-1")


async def test_a_foreign_volume_that_the_node_comes_to_name_is_ours(machine, kube_server):
    machine.believed_s = 0.0
    machine.start()
    machine.seen |= {"vol-1", "vol-2"}
    kube_server.has_attachment("vol-1")
    assert await machine.fitting() == 25

    kube_server.has_node(status={"volumesInUse": [f"kubernetes.io/csi/{EBS_DRIVER}^vol-2"]})

    assert await machine.fitting() == 26
    assert not machine.attachments.is_foreign("vol-2")


async def test_a_volume_of_ours_that_becomes_foreign_is_noticed_later(machine, kube_server):
    machine.believed_s = 0.0
    machine.start()
    machine.seen.add("vol-1")
    kube_server.has_attachment("vol-1")
    assert await machine.fitting() == 26

    kube_server.objects.clear()  # its finalizer was taken off by hand
    kube_server.has_node()
    assert await machine.fitting() == 25


async def test_while_the_api_server_is_away_the_number_stays(machine, kube_server, capsys):
    assert await machine.fitting() == 26
    machine.seen |= {"vol-1", "vol-2"}
    kube_server.tokens.clear()

    assert [await machine.fitting() for _ in range(3)] == [26, 26, 26]
    assert (
        capsys.readouterr().out.count("cannot count foreign volumes; using the previous count") == 1
    )


async def test_before_it_was_ever_known_there_is_no_guess(machine, kube_server):
    kube_server.tokens.clear()

    with pytest.raises(NodeError, match="not known yet which volumes") as caught:
        await machine.fitting()

    assert caught.value.reason is Reason.METADATA_UNAVAILABLE


async def test_what_the_administrator_says_needs_nobody(machine, kube_server):
    kube_server.tokens.clear()
    machine.start(attach_limit=7)

    assert await machine.fitting() == 7


async def test_reserved_places_stand_for_foreign_volumes(machine, kube_server):
    machine.seen |= {"vol-1", "vol-2"}
    kube_server.tokens.clear()
    machine.start(reserved=4)

    assert await machine.fitting() == 23


async def test_an_unknown_type_goes_by_what_the_controller_has_found(machine, kube_server, capsys):
    machine.service.instance_type = "m99.large"
    assert await machine.fitting() == 26
    assert await machine.fitting() == 26
    assert capsys.readouterr().out.count("m99.large is not in the table; assuming 27 shared") == 1

    kube_server.has_node(metadata={"annotations": {ANNOTATION: "m99.large 48 dedicated"}})
    assert await machine.fitting() == 47
    kube_server.has_node()
    assert await machine.fitting() == 47
    kube_server.has_node(metadata={"annotations": {ANNOTATION: "m99.large 40 dedicated"}})
    assert await machine.fitting() == 39


async def test_a_limit_of_another_type_is_left_aside(machine, kube_server, capsys):
    """The instance was stopped, made smaller and started; its label is of before."""
    machine.service.instance_type = "m99.large"
    kube_server.has_node(metadata={"annotations": {ANNOTATION: "m99.48xlarge 128 dedicated"}})
    assert await machine.fitting() == 26
    said = capsys.readouterr().out
    assert (
        "the present one is for m99.48xlarge, by the label node.kubernetes.io/instance-type" in said
    )

    kube_server.has_node(metadata={"annotations": {ANNOTATION: "m99.large 32 dedicated"}})
    assert await machine.fitting() == 31
    kube_server.has_node(metadata={"annotations": {ANNOTATION: "m99.48xlarge 128 dedicated"}})
    assert await machine.fitting() == 31


async def test_a_noted_limit_is_believed_for_a_while_and_without_the_api_server(
    machine, kube_server
):
    machine.service.instance_type = "m99.large"
    kube_server.has_node(metadata={"annotations": {ANNOTATION: "m99.large 48 dedicated"}})
    machine.start(note_believed_s=300.0)
    await machine.fitting()
    kube_server.asked.clear()
    assert [await machine.fitting() for _ in range(3)] == [47, 47, 47]
    assert kube_server.asked == []

    machine.start()
    await machine.fitting()
    kube_server.tokens.clear()
    assert await machine.fitting() == 47


async def test_an_annotation_that_is_no_limit_is_left_aside(machine, kube_server, capsys):
    machine.service.instance_type = "m99.large"
    kube_server.has_node(metadata={"annotations": {ANNOTATION: "48 dedicated"}})

    assert await machine.fitting() == 26
    said = "of the Node is ignored: '48 dedicated' is not an attachment limit of an instance type"
    assert said in capsys.readouterr().out


async def test_an_unknown_type_is_not_guessed_while_the_controller_cannot_be_read(
    machine, kube_server
):
    machine.service.instance_type = "m99.large"
    kube_server.tokens.clear()

    with pytest.raises(NodeError, match="how many volumes the instance type takes"):
        await machine.fitting()


async def test_a_xen_instance_is_counted_by_its_mapping(machine, kube_server):
    machine.service.instance_type = "t2.micro"  # 39, which interfaces do not share
    machine.service.block_devices |= {"ebs1": "sdf", "ebs2": "xvdba"}
    machine.seen.clear()
    # Attached as /dev/xvdba when the instance was started: the mapping has it as foreign.
    kube_server.has_attachment("vol-1")
    kube_server.has_node(
        status={"volumesAttached": [{"name": "kubernetes.io/csi/ebs.csi.aws.com^vol-1"}]}
    )

    assert await machine.fitting() == 37


async def test_a_xen_instance_without_more_than_its_root(machine):
    machine.service.instance_type = "t2.micro"
    machine.seen.clear()

    assert await machine.fitting() == 38


async def test_two_that_ask_at_once_ask_once(machine, kube_server):
    machine.seen.add("vol-1")

    found = await asyncio.gather(*(machine.info.get() for _ in range(5)))

    assert {each.max_volumes for each in found} == {25}
    assert sum(path.startswith(ATTACHMENTS) for path in kube_server.paths()) == 2
