"""What the pods of real nodes check and write, and what is looked for when they are gone."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from provisioner.sandbox.real_node import traces
from provisioner.sandbox.real_node.file_pods import LOST, KnownFile, checking_pod, pod, told

ONE, TWO, THREE = KnownFile("one", 1000), KnownFile("two", 20_000), KnownFile("three", 5)


def run(folder: Path, known: list[KnownFile], new: KnownFile | None) -> tuple[int, str]:
    """Run a checking pod's script over a folder with a shell of ours; its exit code and message."""
    [container] = checking_pod("cycle", "data", known, new, image="busybox:1")["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    message = folder.parent / "message"
    message.unlink(missing_ok=True)
    given = environment | {"DATA": str(folder), "TOLD": str(message)}
    path = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(container["command"], env=given | path, check=False)
    return done.returncode, message.read_text().strip() if message.exists() else ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "lost+found").mkdir(parents=True)
    return made


def test_each_pod_checks_what_all_before_it_have_written(folder: Path) -> None:
    assert run(folder, [], ONE) == (0, "checked  wrote one")
    assert run(folder, [ONE], TWO) == (0, "checked one wrote two")
    assert run(folder, [ONE, TWO], None) == (0, "checked one two wrote")
    assert (folder / "one").read_bytes() == ONE.content
    assert (folder / "two").stat().st_size == TWO.size_bytes
    assert TWO.content.startswith(b"two 0\ntwo 1\n")


def test_a_pod_that_is_run_again_writes_the_same_file_again(folder: Path) -> None:
    (folder / "two").write_bytes(b"half of it")

    assert run(folder, [], TWO)[0] == 0
    assert run(folder, [TWO], None)[0] == 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "one").write_bytes(ONE.content[:-1]), "one: FAILED"),
        (lambda f: (f / "one").write_bytes(bytes(ONE.size_bytes)), "one: FAILED"),
        (lambda f: (f / "one").unlink(), "one"),
        (lambda f: (f / "other").touch(), "LOST: stranger other"),
    ],
    ids=["cut short", "zeros", "gone", "more than was written"],
)
def test_a_wrong_byte_is_told(folder: Path, spoil: Any, message: str) -> None:
    run(folder, [], ONE)
    run(folder, [ONE], THREE)
    spoil(folder)

    code, said = run(folder, [ONE, THREE], TWO)

    assert code == LOST
    assert said.startswith("LOST: ")
    assert message in said
    assert not (folder / "two").exists()


def a_pod(phase: str, *states: dict[str, Any]) -> dict[str, Any]:
    statuses = [{"state": {"terminated": each}} for each in states]
    return {"metadata": {"name": "p"}, "status": {"phase": phase, "containerStatuses": statuses}}


def test_what_a_pod_told_is_known_once_it_has_succeeded() -> None:
    assert told({"metadata": {"name": "p"}}) is None
    assert told(a_pod("Running")) is None
    assert told(a_pod("Succeeded", {"exitCode": 0, "message": "well\n"})) == "well"
    assert told(a_pod("Succeeded", {"exitCode": 0})) == ""
    with pytest.raises(AssertionError, match=r"pod p has failed: .*'exitCode': 1"):
        told(a_pod("Failed", {"exitCode": 1}))
    lost = {"exitCode": LOST, "message": "LOST: one: FAILED"}
    with pytest.raises(AssertionError, match="pod p: LOST: one: FAILED"):
        told(a_pod("Running", lost))
    again = {"state": {"waiting": {}}, "lastState": {"terminated": lost}}
    found = {"metadata": {"name": "p"}, "status": {"containerStatuses": [again]}}
    with pytest.raises(AssertionError, match="LOST"):
        told(found)


def test_a_pod_has_claims_as_folders_and_as_devices() -> None:
    spec = pod("p", "true", {"/a": "one"}, image="i", devices={"/dev/x": "two"}, node="n")["spec"]

    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "n"}
    [container] = spec["containers"]
    claims = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"]}
    assert {m["mountPath"]: claims[m["name"]] for m in container["volumeMounts"]} == {"/a": "one"}
    assert {d["devicePath"]: claims[d["name"]] for d in container["volumeDevices"]} == {
        "/dev/x": "two"
    }


@pytest.mark.parametrize("file_system", ["ext3", "ext4", "xfs"])
def test_a_file_system_is_known_by_what_its_maker_made_up(tmp_path: Path, file_system: str) -> None:
    program = shutil.which(f"mkfs.{file_system}")
    if program is None:
        pytest.skip(f"mkfs.{file_system} is not installed")
    disk = tmp_path / "disk"

    def made() -> str:
        with disk.open("wb") as opened:
            opened.truncate(2**29)
        subprocess.run([program, "-q", disk], check=True)
        return traces.file_system_identity(disk, file_system)

    first = made()

    assert traces.file_system_identity(disk, file_system) == first
    assert made() != first
    disk.write_bytes(bytes(2**20))
    with pytest.raises(AssertionError, match=f"disk holds no {file_system}"):
        traces.file_system_identity(disk, file_system)


def test_what_a_volume_left_on_a_machine_is_named(tmp_path: Path) -> None:
    root = tmp_path / "root"
    kubelet = root / "var" / "lib" / "kubelet"
    by_id = root / "dev" / "disk" / "by-id"
    csi = "plugins/kubernetes.io/csi"
    for each in (
        kubelet / csi / "ebs.csi.aws.com" / "digest",
        kubelet / csi / "ebs.csi.aws.com" / "another",
        kubelet / csi / "volumeDevices" / "pv-1",
        kubelet / "pods" / "uid" / "volumes" / "kubernetes.io~csi" / "pv-1",
        by_id,
    ):
        each.mkdir(parents=True)
    (by_id / "nvme-Amazon_Elastic_Block_Store_vol1").symlink_to("../../nvme3n1")
    stage = f"/var/lib/kubelet/{csi}/ebs.csi.aws.com/digest/globalmount"
    lines = [f"29 1 7:3 / {stage} rw - ext4 /dev/nvme3n1 rw", "30 1 0:5 / /proc rw - proc proc rw"]
    (tmp_path / "mountinfo").write_text("\n".join(lines))

    assert sorted(traces.left_on(root, {"pv-1", "vol1", "digest"})) == [
        "folder var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/digest",
        "folder var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pv-1",
        "folder var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/pv-1",
        "link nvme-Amazon_Elastic_Block_Store_vol1",
        f"mount {stage}",
    ]
    assert traces.left_on(root, {"pv-2", "vol2"}) == []


def test_unmounts_from_pods_are_read_from_what_the_node_plugin_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    at = "2026-11-30T15:00:{:02}.5Z"

    def said(second: int, volume: str, event: str, method: str = "NodeUnpublishVolume") -> str:
        facts = {"method": method, "code": "OK", "volume": volume, "seconds": 2.0}
        return json.dumps({**facts, "event": event, "timestamp": at.format(second)})

    lines = [
        said(10, "vol-1", "answered"),
        said(20, "vol-1", "not answered"),
        said(30, "vol-2", "answered"),
        '{"method": "NodeUnpublishVolume", "event": "unexpected error"}',
        said(40, "vol-1", "answered", method="NodeUnstageVolume"),
    ]
    log.write_text("\n".join(lines))

    began = [datetime.fromisoformat(at.format(second)).timestamp() for second in (8, 18)]
    assert traces.unpublishes(log, "vol-1") == pytest.approx(began)
    assert traces.unpublishes(log, "vol-3") == []


def test_only_kubelets_record_of_a_volume_that_it_has_forgotten_may_be_left(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "dev" / "disk" / "by-id").mkdir(parents=True)
    (tmp_path / "mountinfo").write_text("")
    stages = "var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com"
    folder = root / stages / "digest"
    folder.mkdir(parents=True)
    names, records = {"digest"}, {"digest"}
    named = [f"folder {stages}/digest"]

    assert traces.left_on(root, names, records) == []
    (folder / "vol_data.json").write_text("{}")
    assert traces.left_on(root, names, records) == []
    assert traces.left_on(root, names) == named  # a volume that nobody has forgotten
    (folder / "globalmount").mkdir()
    assert traces.left_on(root, names, records) == named
