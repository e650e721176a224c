"""What is installed: which archive of an image, with which values, and why a pod is not ready."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installed import archive, helm, release, values
from provisioner.sandbox.installed.archive import ImageArchive

DIGEST = f"sha256:{'0' * 64}"
NAME = "docker.io/library/ebs-provisioner:0.1.0"


def manifest(name: str = NAME, architecture: str = "amd64") -> dict[str, Any]:
    return {
        "digest": DIGEST,
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {"io.containerd.image.name": name},
    }


def written(path: Path, *manifests: Any, at_s: float = 0.0, **labels: str) -> Path:
    """Write an archive; if there are labels, with a manifest that is annotated with them."""
    files: dict[str, Any] = {"index.json": {"schemaVersion": 2, "manifests": manifests}}
    if labels:
        annotations = {f"org.opencontainers.image.{key}": text for key, text in labels.items()}
        files[f"blobs/{DIGEST.replace(':', '/')}"] = {"annotations": annotations}
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            data = json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    os.utime(path, (at_s, at_s))
    return path


def test_an_archive_says_which_image_it_holds(tmp_path: Path) -> None:
    path = written(tmp_path / "image.tar", manifest())

    found = archive.read(path)

    assert found == ImageArchive(
        path, "docker.io/library/ebs-provisioner", "0.1.0", DIGEST, "amd64"
    )
    assert found.name == NAME


def test_the_newest_image_for_this_machine_is_chosen(tmp_path: Path) -> None:
    for name, architecture, at_s in (("a", "amd64", 2), ("b", "amd64", 3), ("c", "arm64", 4)):
        written(tmp_path / f"{name}.tar", manifest(architecture=architecture), at_s=at_s)

    assert archive.chosen(folder=tmp_path, machine="x86_64").path.name == "b.tar"
    assert archive.chosen(folder=tmp_path, machine="aarch64").path.name == "c.tar"
    older = tmp_path / "a.tar"
    assert archive.chosen(older, folder=tmp_path, machine="x86_64").path == older


def test_an_archive_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"half an archive")
    assert refusal(folder=tmp_path).startswith(f"{broken} is not an image's archive")

    (tmp_path / "gone.tar").symlink_to(tmp_path / "nowhere")
    written(tmp_path / "good.tar", manifest(), at_s=1)  # the older one

    assert archive.chosen(folder=tmp_path, machine="x86_64").path.name == "good.tar"
    assert refusal(broken).startswith(f"{broken} is not an image's archive")


@pytest.fixture
def commit(tmp_path: Path) -> str:
    """The commit of a checkout in the folder ``checkout``."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")

    def git(*words: str) -> str:
        argv = ["git", "-C", str(tmp_path / "checkout"), *who, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "checkout").mkdir()
    git("init")
    git("commit", "--allow-empty", "--message=first")
    return git("rev-parse", "HEAD")


def why_other(folder: Path, revision: str) -> str:
    image = archive.read(written(folder / "image.tar", manifest(), revision=revision))
    return archive.why_other(image, folder / "checkout")


def test_an_image_of_another_commit_than_the_checkouts_is_one_sentence(
    tmp_path: Path, commit: str
) -> None:
    assert why_other(tmp_path, "0" * 40) == (
        f"{tmp_path}/image.tar is of another commit (000000000000, and this checkout is at "
        f"{commit[:12]}): run make image"
    )
    assert why_other(tmp_path, commit) == ""


def test_an_image_with_changes_that_were_not_committed_is_of_no_commit(
    tmp_path: Path, commit: str
) -> None:
    assert why_other(tmp_path, f"{commit}-dirty") == (
        f"{tmp_path}/image.tar has changes of {commit[:12]} that were not committed: commit them, "
        "then run make image"
    )


def test_an_image_that_does_not_say_its_commit_is_not_compared(tmp_path: Path, commit: str) -> None:
    assert why_other(tmp_path, "unknown") == ""
    image = archive.read(written(tmp_path / "image.tar", manifest()))
    assert archive.why_other(image, tmp_path / "checkout") == ""


def test_where_there_is_no_checkout_no_image_is_of_another_commit(tmp_path: Path) -> None:
    assert why_other(tmp_path, "0" * 40) == ""
    # Nor where git cannot read it.
    (tmp_path / "checkout/.git").mkdir(parents=True)
    assert why_other(tmp_path, "0" * 40) == ""


def refusal(path: Path | None = None, folder: Path = Path("/nonexistent")) -> str:
    with pytest.raises(SandboxError) as refused:
        archive.chosen(path, folder=folder, machine="x86_64")
    return str(refused.value)


def test_no_image_is_one_sentence_that_tells_how_to_build_one(tmp_path: Path) -> None:
    assert refusal(folder=tmp_path) == (
        f"there is no image in {tmp_path}: run make image, or name one by --image"
    )


def test_an_image_for_other_machines_is_one_sentence(tmp_path: Path) -> None:
    path = written(tmp_path / "image.tar", manifest(architecture="arm64"))

    sentence = f"{path} is an image for arm64, and this machine is amd64: run make image ARCH=amd64"
    assert refusal(path) == refusal(folder=tmp_path) == sentence


def test_a_file_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"

    assert refusal(path) == f"{path} cannot be read: No such file or directory"


@pytest.mark.parametrize(
    "content",
    [b"", b"nothing of the kind", b"\0" * 10240],
    ids=["empty", "text", "an empty tar"],
)
def test_a_file_that_is_no_image_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(content)

    assert refusal(path) == (
        f"{path} is not an image's archive as make image writes it (an OCI image layout)"
    )


@pytest.mark.parametrize(
    "wrong",
    [{}, {"annotations": {}}, manifest(name="no-tag"), manifest() | {"platform": None}, "text"],
    ids=["nothing", "no name", "no tag", "no platform", "no manifest"],
)
def test_an_archive_without_what_is_needed_is_one_sentence(tmp_path: Path, wrong: Any) -> None:
    path = written(tmp_path / "image.tar", wrong)

    assert refusal(path).startswith(f"{path} is not an image's archive")


def test_an_archive_of_two_images_is_one_sentence(tmp_path: Path) -> None:
    path = written(tmp_path / "image.tar", manifest(), manifest())

    assert refusal(path).startswith(f"{path} holds 2 images, and one is expected")


def test_all_pods_are_for_real_nodes_and_their_ec2() -> None:
    image = ImageArchive(Path("image.tar"), "ebs-provisioner", "0.1.0", DIGEST, "amd64")

    found = values.of(image, "http://172.31.0.1:4711", "sandbox", webhook=False)

    real = {"ebs-provisioner.io/sandbox-node": "real"}
    pods = ("controller", "webhook", "node", "helmTester")
    assert [found[each]["nodeSelector"] for each in pods] == [real] * 4
    ec2 = [{"name": "AWS_ENDPOINT_URL_EC2", "value": "http://172.31.0.1:4711"}]
    assert found["controller"]["env"] == found["webhook"]["env"] == ec2
    assert found["webhook"]["enabled"] is False
    assert found["image"]["pullPolicy"] == "Never"


READY = {"type": "Ready", "status": "True"}
UNREADY = {"type": "Ready", "status": "False", "message": "containers with unready status: [node]"}
UNBOUND = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}


@pytest.mark.parametrize(
    ("conditions", "container", "why"),
    [
        ([READY], {"state": {"running": {}}}, ""),
        ([UNBOUND], None, "ns/pod: 0/2 nodes are available"),
        (
            [UNREADY],
            {"state": {"waiting": {"reason": "ErrImageNeverPull", "message": "not  present"}}},
            "ns/pod: ErrImageNeverPull not present",
        ),
        (
            [UNREADY],
            {"state": {"running": {}}, "lastState": {"terminated": {"reason": "OOMKilled"}}},
            "ns/pod: OOMKilled",
        ),
        (
            [UNREADY],
            {"state": {"running": {}}},
            "ns/pod: containers with unready status: [node]",
        ),
        ([], None, "ns/pod: Pending"),
    ],
)
def test_why_a_pod_is_not_ready_is_one_line(
    conditions: list[Any], container: dict[str, Any] | None, why: str
) -> None:
    status = {
        "phase": "Pending",
        "conditions": conditions,
        "containerStatuses": [container] if container else None,
    }

    pod = {"metadata": {"namespace": "ns", "name": "pod"}, "status": status}
    assert release.why_not_ready(pod) == why


def test_a_pod_that_is_about_to_end_is_not_asked_whether_it_leads() -> None:
    status = {"conditions": [READY]}
    stays = {"metadata": {"name": "stays"}, "status": status}
    ends = {"metadata": {"name": "ends", "deletionTimestamp": "2026-11-23T12:00:00Z"}}
    starts = {"metadata": {"name": "starts"}, "status": {"conditions": [UNREADY]}}

    assert release.ready_to_stay([stays, ends | {"status": status}, starts]) == ["stays"]


def test_what_helm_says_of_our_links_is_left_out() -> None:
    link = 'level=INFO msg="found symbolic link in path. Contents of linked file included" path=a\n'

    assert helm.without_links(f"{link}Error: refused\n{link}") == "Error: refused\n"
