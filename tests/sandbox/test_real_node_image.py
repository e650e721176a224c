from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from provisioner.sandbox.real_node import image

PROGRAM = b"a static program" * 1000


class Layout:
    """An OCI image layout, read as an importer does: by digests alone."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.files = {
                each.name: handle.read()
                for each in tar.getmembers()
                if (handle := tar.extractfile(each)) is not None
            }
        self.index = json.loads(self.files["index.json"])

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        content = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(content) == descriptor["size"]
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
        return content

    def manifest(self, name: str) -> dict[str, Any]:
        (found,) = (
            each
            for each in self.index["manifests"]
            if each["annotations"]["io.containerd.image.name"] == name
        )
        manifest: dict[str, Any] = json.loads(self.blob(found))
        return manifest

    def config(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self.blob(self.manifest(name)["config"]))
        return config

    def layer(self, name: str) -> bytes:
        (layer,) = self.manifest(name)["layers"]
        return self.blob(layer)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    images = image.images_of(image.base(PROGRAM, ["busybox", "cat", "sh"]))
    return Layout(image.write(tmp_path / "i.tar", images, "aarch64"))


def test_the_layout_says_its_version(layout: Layout) -> None:
    assert json.loads(layout.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        (image.BUSYBOX, {"Cmd": ["sh"]}),
        (image.PAUSE, {"Entrypoint": ["/bin/sleep", "2147483647"]}),
    ],
)
def test_each_image_runs_its_own_command_on_the_same_layer(
    layout: Layout, name: str, runs: dict[str, list[str]]
) -> None:
    config = layout.config(name)

    assert runs.items() <= config["config"].items()
    assert (config["os"], config["architecture"]) == ("linux", "arm64")
    unpacked = hashlib.sha256(layout.layer(name)).hexdigest()
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{unpacked}"]}
    assert layout.layer(name) == layout.layer(image.BUSYBOX)


def test_the_layer_holds_the_program_and_a_link_for_each_applet(layout: Layout) -> None:
    with tarfile.open(fileobj=io.BytesIO(layout.layer(image.BUSYBOX))) as tar:
        program = tar.getmember("bin/busybox")
        handle = tar.extractfile(program)
        assert handle is not None
        assert handle.read() == PROGRAM
        assert program.mode == 0o755
        links = {each.name: each.linkname for each in tar.getmembers() if each.issym()}
        assert tar.getmember("tmp").mode == 0o1777

    assert links == {"bin/cat": "busybox", "bin/sh": "busybox"}


def test_the_same_program_makes_the_same_bytes(tmp_path: Path) -> None:
    def written(name: str) -> bytes:
        images = image.images_of(image.base(PROGRAM, ["sh"]))
        return image.write(tmp_path / name, images).read_bytes()

    assert written("a") == written("b")


def test_an_image_can_add_programs_to_the_layer_that_others_have(tmp_path: Path) -> None:
    base = image.base(PROGRAM, ["sh"])
    more = image.programs({"/agnhost": b"a" * 10, "/usr/lib/x/libc.so": b"library"})
    added = image.Image("registry/agnhost:2", {"Entrypoint": ["/agnhost"]}, [base, more])
    layout = Layout(image.write(tmp_path / "i.tar", [*image.images_of(base), added]))

    layers = [layout.blob(each) for each in layout.manifest(added.name)["layers"]]
    with tarfile.open(fileobj=io.BytesIO(layers[1])) as tar:
        entries = {each.name: (each.isdir(), each.mode) for each in tar.getmembers()}

    assert layers[0] == layout.layer(image.BUSYBOX)
    assert entries == {
        "usr": (True, 0o755),
        "usr/lib": (True, 0o755),
        "usr/lib/x": (True, 0o755),
        "agnhost": (False, 0o755),
        "usr/lib/x/libc.so": (False, 0o755),
    }
    assert layout.config(added.name)["config"]["Entrypoint"] == ["/agnhost"]
    diff_ids = layout.config(added.name)["rootfs"]["diff_ids"]
    assert diff_ids == [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]
    assert len(layout.files) == 2 + 2 + 3 * 2  # each layer once, a config and a manifest each


def test_pods_name_the_image_by_a_tag_that_no_kubelet_pulls() -> None:
    # "latest", said or not, is always pulled.
    name, _, tag = image.POD_IMAGE.partition(":")

    assert f"docker.io/library/{name}:{tag}" == image.BUSYBOX
    assert tag not in ("", "latest")
