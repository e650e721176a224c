"""What is generated is that of the ``.proto`` files, and those are wire-compatible with CSI 1.x."""

from pathlib import Path

from provisioner.node.csi.wire import csi_pb2, registration_pb2
from tests.node.generate import ROOT, generate


def test_what_is_committed_is_what_the_protos_give(tmp_path: Path):
    made = generate(tmp_path)

    assert len(made) >= 4
    stale = [str(p) for p in made if (tmp_path / p).read_text() != (ROOT / p).read_text()]
    assert stale == [], "write them anew: .venv/bin/python -m tests.node.generate"


def numbers(message: str) -> dict[str, int]:
    return {f.name: f.number for f in csi_pb2.DESCRIPTOR.message_types_by_name[message].fields}


def test_the_numbers_on_the_wire_are_those_of_csi():
    # Source: csi.proto of CSI 1.12.
    assert numbers("NodeStageVolumeRequest") == {
        "volume_id": 1,
        "publish_context": 2,
        "staging_target_path": 3,
        "volume_capability": 4,
        "volume_context": 6,
    }
    assert numbers("NodePublishVolumeRequest") == {
        "volume_id": 1,
        "publish_context": 2,
        "staging_target_path": 3,
        "target_path": 4,
        "volume_capability": 5,
        "readonly": 6,
        "volume_context": 8,
    }
    assert numbers("NodeExpandVolumeRequest") == {
        "volume_id": 1,
        "volume_path": 2,
        "capacity_range": 3,
        "staging_target_path": 4,
        "volume_capability": 5,
    }
    assert numbers("VolumeUsage") == {"available": 1, "total": 2, "used": 3, "unit": 4}


def test_bytes_of_another_speaker_are_read():
    # {volume_id: "vol-1", readonly: true, secrets: {"k": "v"}} as the official messages write it.
    foreign = b"\x0a\x05vol-1" + b"\x30\x01" + b"\x3a\x06\x0a\x01k\x12\x01v"

    request = csi_pb2.NodePublishVolumeRequest.FromString(foreign)

    assert (request.volume_id, request.readonly) == ("vol-1", True)
    assert "secrets" not in str(request)


def test_the_services_are_called_as_kubelet_calls_them():
    services = {
        name
        for pb in (csi_pb2, registration_pb2)
        for name in (s.full_name for s in pb.DESCRIPTOR.services_by_name.values())
    }

    assert services == {"csi.v1.Identity", "csi.v1.Node", "pluginregistration.Registration"}
