"""Which version an image is labelled with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from image.errors import ImageError
from image.source import describe


class Checkout:
    """A small git repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.write("pyproject.toml", '[project]\nversion = "1.2.3"\n')
        self.write("docs/page.md", "text")
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "first")

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(exist_ok=True)
        (self.folder / path).write_text(text)

    def git(self, *argv: str) -> str:
        person = (
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "commit.gpgsign=false",
        )
        return subprocess.run(
            ["git", *person, *argv],
            cwd=self.folder,
            env={**os.environ, "GIT_COMMITTER_DATE": "2026-11-23T12:00:00Z"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    @property
    def commit(self) -> str:
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    return Checkout(tmp_path / "checkout")


def test_a_release_is_a_commit_with_the_tag_of_its_version(checkout: Checkout):
    checkout.git("tag", "v1.2.3")

    found = describe(checkout.folder)

    assert (found.version, found.revision) == ("1.2.3", checkout.commit)
    assert found.created.isoformat() == "2026-11-23T12:00:00+00:00"


@pytest.mark.parametrize("tag", ["v1.2.2", "1.2.3", None])
def test_any_other_commit_is_in_its_version(checkout: Checkout, tag: str | None):
    if tag:
        checkout.git("tag", tag)

    assert describe(checkout.folder).version == f"1.2.3-g{checkout.commit[:12]}"


@pytest.mark.parametrize("path", ["pyproject.toml", "provisioner/new.py", ".ci/image/wheels.txt"])
def test_changes_that_are_not_committed_are_in_its_version(checkout: Checkout, path: str):
    checkout.git("tag", "v1.2.3")
    checkout.write(".ci/x", "")
    (checkout.folder / path).parent.mkdir(exist_ok=True)
    with (checkout.folder / path).open("a") as file:
        file.write("\n# changed")

    found = describe(checkout.folder)

    assert found.version == f"1.2.3-g{checkout.commit[:12]}-dirty"
    assert found.revision == f"{checkout.commit}-dirty"


def test_changes_of_what_is_not_in_the_image_do_not_matter(checkout: Checkout):
    checkout.git("tag", "v1.2.3")
    checkout.write("docs/page.md", "other text")

    assert describe(checkout.folder).version == "1.2.3"


def test_an_unpacked_release_without_git_has_its_version_alone(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')

    found = describe(tmp_path)

    assert (found.version, found.revision) == ("1.2.3", "")


def test_the_time_can_be_set_for_all_builds(checkout: Checkout, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1577836800")

    assert describe(checkout.folder).created.isoformat() == "2020-01-01T00:00:00+00:00"


@pytest.mark.parametrize("text", ["yesterday", "9" * 30, "1.5"])
def test_a_time_that_is_none_is_one_sentence(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, text: str
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)

    with pytest.raises(ImageError, match=rf"^SOURCE_DATE_EPOCH is '{text}', and no number"):
        describe(checkout.folder)


def test_a_checkout_that_git_refuses_is_no_release(checkout: Checkout):
    """As in a container of CI that runs as another user than the checkout's."""
    (checkout.folder / ".git/HEAD").unlink()

    with pytest.raises(
        ImageError, match=r"^git cannot say which commit this is.*: fatal: "
    ) as caught:
        describe(checkout.folder)

    assert "\n" not in str(caught.value)


def test_a_checkout_without_git_is_no_release(checkout: Checkout, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(checkout.folder))

    with pytest.raises(ImageError, match="git is not installed"):
        describe(checkout.folder)
