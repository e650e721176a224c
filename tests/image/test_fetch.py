"""Packages come from the cache, a mirror or Debian's archive, and only with the locked hash."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from image import fetch
from image.debian import Lock, Package
from image.errors import ImageError

DATA = b"a package"
PACKAGE = Package(
    name="libnone",
    version="1:1.0+deb12u1",
    source="none",
    path="debian/pool/main/n/none/libnone_1.0+deb12u1_amd64.deb",
    sha256=hashlib.sha256(DATA).hexdigest(),
)
LOCK = Lock("20261123T000000Z", {"amd64": {PACKAGE.name: PACKAGE}})


class Mirror(ThreadingHTTPServer):
    """Answers each request with ``data``, or with 404 if there is none; it may hang up halfway."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data: bytes | None = DATA
        self.hangs_up = False
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(404 if self.server.data is None else 200)
        data = self.server.data or b""
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:3] if self.server.hangs_up else data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name there
        pass


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("DEBIAN_MIRROR", f"{server.url}/mirror/")
        monkeypatch.setenv("DEBIAN_ARCHIVE", f"{server.url}/archive")
        yield server
        server.shutdown()
        thread.join()


def got(cache: Path) -> bytes:
    return fetch.package(cache, LOCK, PACKAGE, lambda _: None)


def test_a_package_is_fetched_once(mirror: Mirror, tmp_path: Path):
    assert got(tmp_path) == got(tmp_path) == DATA

    assert mirror.asked == [f"/mirror/{PACKAGE.path.replace('+', '%2b')}"]


def test_a_damaged_copy_in_the_cache_is_fetched_again(mirror: Mirror, tmp_path: Path):
    got(tmp_path)
    (tmp_path / "debian" / PACKAGE.sha256).write_bytes(b"half")

    assert got(tmp_path) == DATA
    assert (tmp_path / "debian" / PACKAGE.sha256).read_bytes() == DATA


def test_what_has_another_hash_is_never_taken_nor_kept(mirror: Mirror, tmp_path: Path):
    mirror.data = b"something else"

    with pytest.raises(ImageError, match="its hash is not the locked one"):
        got(tmp_path)

    assert not (tmp_path / "debian").exists()


def test_a_version_that_mirrors_have_no_more_comes_from_the_archive(mirror: Mirror, tmp_path: Path):
    mirror.data = None

    with pytest.raises(ImageError, match="404"):
        got(tmp_path)

    assert mirror.asked[1] == (
        "/archive/debian/20261123T000000Z/pool/main/n/none/libnone_1.0%2bdeb12u1_amd64.deb"
    )


def test_without_a_network_one_sentence_says_what_would_help(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("DEBIAN_MIRROR", "http://127.0.0.1:1")
    monkeypatch.setenv("DEBIAN_ARCHIVE", "http://127.0.0.1:1")

    with pytest.raises(ImageError) as caught:
        got(tmp_path)

    said = str(caught.value)
    assert said.startswith("cannot fetch Debian package libnone 1:1.0+deb12u1 (http://127.0.0.1:1/")
    assert "check the network, name another mirror in DEBIAN_MIRROR" in said
    assert "\n" not in said


def test_a_mirror_that_hangs_up_halfway_is_one_of_those_that_failed(mirror: Mirror, tmp_path: Path):
    mirror.hangs_up = True

    with pytest.raises(ImageError, match=r"/mirror/.*: IncompleteRead.*/archive/") as caught:
        got(tmp_path)

    assert "\n" not in str(caught.value)
    assert not (tmp_path / "debian").exists()


def test_a_mirror_that_is_no_url_is_one_of_those_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("DEBIAN_MIRROR", "mirror.example")
    monkeypatch.delenv("DEBIAN_ARCHIVE", raising=False)

    with pytest.raises(ImageError, match=r"\(mirror\.example/debian/.*: unknown url type"):
        got(tmp_path)


def test_the_mirror_is_the_one_that_apt_uses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    prints = "echo http://a.example/debian/; echo http://b.example/debian-security"
    apt_that(prints, monkeypatch, tmp_path)

    assert fetch.site("debian") == "http://a.example/debian"
    assert fetch.site("debian-security") == "http://b.example/debian-security"


@pytest.mark.parametrize("prints", ["echo http://mirror.example/ubuntu", "exit 100"])
def test_where_apt_knows_no_mirror_of_debian_one_has_to_be_named(
    prints: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    apt_that(prints, monkeypatch, tmp_path)

    with pytest.raises(ImageError, match="names no mirror of debian: name one in DEBIAN_MIRROR"):
        fetch.site("debian")


def test_without_apt_a_mirror_has_to_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ImageError, match="name one in DEBIAN_MIRROR"):
        fetch.site("debian")


def apt_that(prints: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "apt-get").write_text(f"#!/bin/sh\n{prints}\n")
    (folder / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_wheel_that_is_not_locked_is_not_taken(tmp_path: Path):
    requirements = tmp_path / "wheels.txt"
    requirements.write_text("click==8.5.1\n")

    with pytest.raises(ImageError, match=r"^pip download fails: .*[Hh]ash"):
        fetch.wheels(tmp_path / "cache", requirements, "amd64", lambda _: None)

    assert [*(tmp_path / "cache/wheels").iterdir()] == []


def test_a_damaged_wheel_in_the_cache_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    requirements = tmp_path / "wheels.txt"
    requirements.write_text(f"none==1 --hash=sha256:{PACKAGE.sha256}\n")
    fetched = []

    def download(*argv: str) -> None:
        [folder] = [Path(each.removeprefix("--dest=")) for each in argv if "--dest=" in each]
        folder.mkdir()
        (folder / "none-1-py3-none-any.whl").write_bytes(DATA)
        fetched.append(folder)

    monkeypatch.setattr(fetch, "pip", download)

    def wheel() -> Path:
        found = fetch.wheels(tmp_path / "cache", requirements, "amd64", lambda _: None)
        return found / "none-1-py3-none-any.whl"

    assert wheel().read_bytes() == DATA
    wheel().write_bytes(b"half")

    assert wheel().read_bytes() == DATA
    assert len(fetched) == 2


def test_a_write_that_fails_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    fetch.put(tmp_path / "image.tar", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space"):
        fetch.put(tmp_path / "image.tar", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["image.tar"]
    assert (tmp_path / "image.tar").read_bytes() == b"old"
