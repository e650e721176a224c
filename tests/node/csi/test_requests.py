"""What of the kubelet's requests is refused, in which words."""

import re
from typing import Any

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.csi.service import Requests
from provisioner.node.csi.wire import csi_pb2
from provisioner.node.requests import AccessMode, Capability, Expand, Publish, Stage, Stats

ID = "vol-0123456789abcdef0"
STAGING = "/var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/0a/globalmount"
TARGET = "/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~csi/pv/mount"
REQUESTS = Requests("/var/lib/kubelet")
MODE = csi_pb2.VolumeCapability.AccessMode


def capability(mode: Any = MODE.SINGLE_NODE_WRITER, **mount: Any) -> csi_pb2.VolumeCapability:
    return csi_pb2.VolumeCapability(
        mount=csi_pb2.VolumeCapability.MountVolume(**mount),
        access_mode=MODE(mode=MODE.Mode.Name(mode)),
    )


def block(mode: Any) -> csi_pb2.VolumeCapability:
    return csi_pb2.VolumeCapability(
        block=csi_pb2.VolumeCapability.BlockVolume(), access_mode=MODE(mode=MODE.Mode.Name(mode))
    )


def stage(**fields: Any) -> Stage:
    whole: dict[str, Any] = {
        "volume_id": ID,
        "staging_target_path": STAGING,
        "volume_capability": capability(),
    }
    return REQUESTS.stage(csi_pb2.NodeStageVolumeRequest(**(whole | fields)))


def refused(do: Any) -> str:
    with pytest.raises(NodeError) as caught:
        do()
    assert caught.value.reason is Reason.INVALID_REQUEST
    return caught.value.message


def test_a_stage_is_read_whole():
    record = stage(
        volume_capability=capability(fs_type="xfs", mount_flags=["noatime", "discard,ro"]),
        publish_context={"devicePath": "/dev/xvdba"},
        volume_context={"partition": "1"},
    )

    assert record == Stage(
        volume_id=ID,
        staging_path=STAGING,
        capability=Capability(
            is_block=False,
            file_system="xfs",
            mount_flags=("noatime", "discard,ro"),
            access_mode=AccessMode.SINGLE_NODE_WRITER,
        ),
        publish_context={"devicePath": "/dev/xvdba"},
        volume_context={"partition": "1"},
    )


def test_a_publish_is_read_whole():
    record = REQUESTS.publish(
        csi_pb2.NodePublishVolumeRequest(
            volume_id=ID,
            staging_target_path=STAGING,
            target_path=TARGET,
            volume_capability=block(MODE.MULTI_NODE_MULTI_WRITER),
            readonly=True,
        )
    )

    assert record == Publish(
        volume_id=ID,
        staging_path=STAGING,
        target_path=TARGET,
        capability=Capability(
            is_block=True,
            file_system="",
            mount_flags=(),
            access_mode=AccessMode.MULTI_NODE_MULTI_WRITER,
        ),
        read_only=True,
        publish_context={},
        volume_context={},
    )


def test_a_grow_and_a_measure_are_read_whole():
    size = csi_pb2.CapacityRange(required_bytes=5, limit_bytes=9)

    assert REQUESTS.expand(
        csi_pb2.NodeExpandVolumeRequest(volume_id=ID, volume_path=TARGET, capacity_range=size)
    ) == Expand(ID, TARGET, "", 5, None)
    assert REQUESTS.stats(
        csi_pb2.NodeGetVolumeStatsRequest(
            volume_id=ID, volume_path=TARGET, staging_target_path=STAGING
        )
    ) == Stats(ID, TARGET)


def test_an_in_tree_id_is_that_of_its_volume():
    assert stage(volume_id=f"aws://eu-west-1a/{ID}").volume_id == ID


@pytest.mark.parametrize(
    "volume_id",
    ["vol", "vol-", "vol-../../etc", "vol-0 ", f"{ID}/x", f"{ID}\n", "snap-01", "-", "x" * 5000],
)
def test_a_malformed_id_is_refused(volume_id: str):
    message = refused(lambda: stage(volume_id=volume_id))

    assert message.startswith('volume_id "')
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "is missing"),
        ("some/path", "not absolute"),
        ("./var/lib/kubelet/pods/x", "not absolute"),
        ("/var/lib/kubelet/pods/../../../../etc", "not normalised"),
        ("/var/lib/kubelet/pods/x/..", "not normalised"),
        ("/var/lib/kubelet/pods/./x", "not normalised"),
        ("/var/lib/kubelet/pods//x", "not normalised"),
        ("//var/lib/kubelet/pods/x", "not normalised"),
        ("/var/lib/kubelet/pods/x/", "not normalised"),
        ("/var/lib/kubelet/pods/x\0y", "unprintable characters"),
        ("/var/lib/kubelet/pods/x\ny", "unprintable characters"),
        ("/", "neither below"),
        ("/etc", "neither below"),
        ("/var/lib/kubelet", "neither below"),
        ("/var/lib/kubelet/pods", "neither below"),
        ("/var/lib/kubelet/pki/x", "neither below"),
        ("/var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock", "neither below"),
        ("/var/lib/kubelet-of-another/pods/x", "neither below"),
        ("/var/lib/kubelet/pods/" + "x/" * 2100 + "x", "longer than 4095 bytes"),
    ],
)
def test_a_path_that_is_not_the_kubelets_is_refused(path: str, why: str):
    of_stage = refused(lambda: stage(staging_target_path=path))
    of_unpublish = refused(
        lambda: REQUESTS.unpublish(
            csi_pb2.NodeUnpublishVolumeRequest(volume_id=ID, target_path=path)
        )
    )

    assert why in of_stage
    assert why in of_unpublish
    assert of_stage.startswith("staging_target_path ")
    assert of_unpublish.startswith("target_path ")
    assert of_stage.isprintable()


def test_paths_follow_the_kubelets_root():
    elsewhere = Requests("/data/kubelet")
    request = csi_pb2.NodeUnstageVolumeRequest(volume_id=ID, staging_target_path=STAGING)

    assert "--kubelet-dir" in refused(lambda: elsewhere.unstage(request))
    request.staging_target_path = STAGING.replace("/var/lib", "/data")
    assert elsewhere.unstage(request).staging_path.startswith("/data/kubelet/")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (None, "volume_capability is missing"),
        (csi_pb2.VolumeCapability(), "neither block nor mount"),
        (
            csi_pb2.VolumeCapability(mount=csi_pb2.VolumeCapability.MountVolume()),
            "access mode 0 is unknown",
        ),
        (capability(MODE.MULTI_NODE_MULTI_WRITER), "needs a raw block volume"),
        (capability(MODE.MULTI_NODE_SINGLE_WRITER), "needs a raw block volume"),
        (capability(fs_type="btrfs"), "file system 'btrfs' is not supported; use one of ext4"),
        (capability(fs_type="ext4 -F"), "is not supported"),
        (capability(mount_flags=["ro", ""]), "mount option"),
        (capability(mount_flags=["a\0b"]), "mount option"),
        (capability(volume_mount_group="1000"), "volume_mount_group is not supported"),
    ],
)
def test_a_capability_that_cannot_be_served_is_refused(
    asked: csi_pb2.VolumeCapability | None, why: str
):
    assert why in refused(lambda: stage(volume_capability=asked))


def test_a_mode_that_csi_has_not_is_refused():
    # Field 3 (access_mode) with mode 99, and field 2 (mount) empty: no class has a name for it.
    raw = b"\x12\x00\x1a\x02\x08\x63"
    assert "access mode 99 is unknown" in refused(
        lambda: stage(volume_capability=csi_pb2.VolumeCapability.FromString(raw))
    )


def test_of_block_and_mount_on_the_wire_the_last_one_counts():
    # A oneof of protobuf cannot hold both, whoever has written them: this is what any peer reads.
    both = b"\x0a\x00" + b"\x12\x00" + b"\x1a\x02\x08\x01"

    record = stage(volume_capability=csi_pb2.VolumeCapability.FromString(both))

    assert not record.capability.is_block


@pytest.mark.parametrize("mode", [m for m in AccessMode if not m.startswith("MULTI_NODE")])
def test_a_file_system_is_served_to_one_node(mode: AccessMode):
    assert stage(volume_capability=capability(MODE.Mode.Value(mode))).capability.access_mode is mode


@pytest.mark.parametrize("mode", AccessMode)
def test_a_raw_device_is_served_in_every_mode(mode: AccessMode):
    record = stage(volume_capability=block(MODE.Mode.Value(mode)))

    assert record.capability.is_block
    assert record.capability.is_read_only == mode.endswith("READER_ONLY")


@pytest.mark.parametrize(
    ("size", "why"),
    [
        ({"required_bytes": -1}, "negative"),
        ({"limit_bytes": -(2**63)}, "negative"),
        ({"required_bytes": 9, "limit_bytes": 5}, "contradicts itself"),
    ],
)
def test_an_impossible_size_is_refused(size: dict[str, int], why: str):
    message = csi_pb2.NodeExpandVolumeRequest(volume_id=ID, volume_path=TARGET, capacity_range=size)

    assert why in refused(lambda: REQUESTS.expand(message))


def test_a_nul_in_a_context_is_refused():
    assert "publish_context has a NUL" in refused(lambda: stage(publish_context={"a": "\0"}))


@pytest.mark.parametrize(
    ("volume_id", "path"), [("fake-vol-id-1", "some/path"), (ID, "some/path"), ("x", TARGET)]
)
def test_what_cannot_be_mounted_is_not_found_where_it_is_measured_or_grown(
    volume_id: str, path: str
):
    for ask in (
        lambda: REQUESTS.stats(
            csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume_id, volume_path=path)
        ),
        lambda: REQUESTS.expand(
            csi_pb2.NodeExpandVolumeRequest(volume_id=volume_id, volume_path=path)
        ),
    ):
        with pytest.raises(NodeError) as caught:
            ask()
        assert caught.value.reason is Reason.VOLUME_NOT_FOUND
        assert re.match(
            "no volume of this driver can be there: volume_(id|path) ", caught.value.message
        )


@pytest.mark.parametrize(("volume_id", "path"), [("", TARGET), (ID, "")])
def test_what_is_missing_is_refused_where_it_is_measured(volume_id: str, path: str):
    message = csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume_id, volume_path=path)

    assert refused(lambda: REQUESTS.stats(message)).endswith("is missing")
