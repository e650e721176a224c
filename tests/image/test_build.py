"""Two builds are one image, and what cannot be built leaves nothing behind."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from image import __main__ as command
from image import recipe, source, tree
from image.build import Builder, Built, read_layer
from image.debian import Lock, read_lock
from image.errors import ImageError
from image.oci import Layer, digest_of
from image.source import describe
from image.tree import Entry

ROOT = Path(__file__).parents[2]


# Before the test of two builds: the first image, which it makes, may take a minute itself.
def test_of_the_layers_in_the_cache_only_a_damaged_one_is_made_again(
    built: Built, architecture: str, cache: Path, tmp_path: Path
):
    for kept in ("debian", "wheels", "python"):
        (tmp_path / kept).symlink_to(cache / kept)
    (tmp_path / "layers").mkdir()
    for layer in (cache / "layers").glob(f"{architecture}-*"):
        (tmp_path / "layers" / layer.name).write_bytes(layer.read_bytes())
    smallest = min((tmp_path / "layers").iterdir(), key=lambda path: path.stat().st_size)
    smallest.write_bytes(smallest.read_bytes()[:1000])

    said: list[str] = []
    again = Builder(tmp_path, said.append).build(architecture, describe(ROOT))

    assert again.archive == built.archive
    damaged, made = (each for each in said if "layer" in each)
    assert damaged == f"{smallest} is damaged, and made again"
    assert made.startswith("making the layer of ")


def cut_short(layer: bytes) -> bytes:
    return layer[:-9]


def with_another_end(layer: bytes) -> bytes:
    return layer[:-8] + bytes(8)


def with_a_block_of_no_type(layer: bytes) -> bytes:
    """The third type, which deflate (RFC 1951, 3.2.3) reserves, after gzip's header of ten bytes."""
    return layer[:10] + b"\x07" + layer[11:]


@pytest.mark.parametrize(
    "damage", [cut_short, with_another_end, with_a_block_of_no_type, lambda _: b"", lambda _: b"no"]
)
def test_a_layer_that_is_damaged_in_any_way_is_none(
    damage: Callable[[bytes], bytes], tmp_path: Path
):
    good = gzip.compress(b"a layer", mtime=0)
    (tmp_path / "layer").write_bytes(good)
    assert read_layer(tmp_path / "layer", "ours") == Layer(good, digest_of(b"a layer"), "ours")

    (tmp_path / "layer").write_bytes(damage(good))

    assert read_layer(tmp_path / "layer", "ours") is None


def test_two_builds_of_one_commit_have_one_digest(
    built: Built, architecture: str, cache: Path, tmp_path: Path
):
    # The same packages, and no layer or Python that the first build has made.
    for kept in ("debian", "wheels"):
        (tmp_path / kept).symlink_to(cache / kept)

    again = Builder(tmp_path, print).build(architecture, describe(ROOT))

    assert again.archive.digest == built.archive.digest
    assert again.files == built.files


def test_an_unknown_architecture_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    assert command.main(["--arch=riscv64", f"--into={tmp_path}"]) == 1

    said = capsys.readouterr().err
    assert said == "image: there is no image for riscv64: amd64 and arm64 are built\n"
    assert [*tmp_path.iterdir()] == []


def test_a_build_that_fails_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    architecture: str,
    tmp_path: Path,
):
    def nothing_to_build(*_: object) -> dict[str, Entry]:
        raise ImageError("our wheel cannot be built: no such thing")

    monkeypatch.setattr(source, "ours", nothing_to_build)

    assert command.main([f"--into={tmp_path / 'dist'}"]) == 1
    assert capsys.readouterr().err == "image: our wheel cannot be built: no such thing\n"
    assert not (tmp_path / "dist").exists()


def test_a_build_removes_those_of_other_commits_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, built: Built, architecture: str, tmp_path: Path
):
    monkeypatch.setattr(Builder, "build", lambda *_: built)
    other = next(each for each in recipe.MACHINES if each != architecture)
    old = f"{recipe.NAME}-0.2.0-g0123456789ab"
    mine = ["mine.tar", f"{recipe.NAME}-mine-linux-{architecture}.tar"]
    release = f"{recipe.NAME}-0.1.0-linux-{architecture}.tar"
    others = f"{old}-linux-{other}.tar"
    ours = f"linux-{architecture}"
    gone = [f"{old}-{ours}.tar", f"{old}-dirty-{ours}.cdx.json"]
    for name in (*mine, release, others, *gone):
        (tmp_path / name).touch()

    assert command.main([f"--into={tmp_path}"]) == 0

    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*mine, release, others, *built.files}


def test_a_package_that_is_not_locked_is_one_sentence():
    with pytest.raises(ImageError, match=r"libnone is not locked for amd64 .*make image-lock"):
        Lock("", {}).of("amd64", "libnone")


@pytest.mark.parametrize("architecture", recipe.MACHINES)
def test_all_packages_are_locked_for_all_architectures(architecture: str):
    lock = read_lock()

    assert set(lock.packages[architecture]) == set(recipe.PACKAGES)
    for package in lock.packages[architecture].values():
        assert package.path.endswith((f"_{architecture}.deb", "_all.deb"))
    other = next(name for name in recipe.MACHINES if name != architecture)
    assert {name: each.version for name, each in lock.packages[other].items()}.keys() == {
        *lock.packages[architecture]
    }


def archive(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for member in members:
            made.addfile(member, io.BytesIO(b"x" * member.size))
    return buffer.getvalue()


def member(name: str, mode: int = 0o644, size: int = 1, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.size = mode, size
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def test_old_paths_are_those_below_usr_and_nothing_is_set_user_id():
    data = archive(
        member("./bin/mount", 0o4755),
        member("./lib64/ld.so", type=tarfile.SYMTYPE, linkname="/lib/ld.so", size=0),
        member("./usr/share/man/mount.8"),
        member("./usr/bin/su", 0o4755),
    )

    found = tree.from_tar(data, recipe.is_taken)

    assert found == {
        "usr/bin/mount": Entry(0o755, b"x"),
        "usr/lib64/ld.so": Entry(0o777, target="/lib/ld.so"),
    }


def test_a_layer_depends_on_its_content_alone():
    one = {"b/file": Entry(0o644, b"1"), "a": Entry(0o777, target="b")}
    other = dict(reversed(one.items()))

    assert tree.to_tar(one) == tree.to_tar(other)
    with tarfile.open(fileobj=io.BytesIO(tree.to_tar(one))) as read:
        assert read.getnames() == ["b", "a", "b/file"]


def test_bytecode_follows_its_source_and_folders_come_first():
    paths = [
        "m/b.py",
        "m/__pycache__/a.cpython-311.pyc",
        "m/__pycache__/b.cpython-311.pyc",
        "m/a.py",
    ]

    made = tree.with_folders({path: Entry(0o644, b"1") for path in paths})

    assert [*made] == ["m", "m/__pycache__", paths[3], paths[1], paths[0], paths[2]]


def test_folders_in_which_nothing_is_left_are_dropped():
    found = {"a": Entry(0o755), "a/b": Entry(0o755), "c": Entry(0o755), "c/d": Entry(0o644, b"")}

    assert [*tree.without_empty_folders(found, ["a"])] == ["a", "c", "c/d"]
