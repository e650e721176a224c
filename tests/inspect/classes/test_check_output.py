"""What ``ebs-provisioner class check`` prints of files that say odd things."""

from pathlib import Path

import pytest

from tests.inspect.classes.test_check import MISSPELT, SOUND, Captured, a_file, checked

KMS = {"kmsKeyId": "alias/mine", "encrypted": "false"}


def test_what_only_this_controller_refuses_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
):
    assert checked(monkeypatch, a_file(tmp_path, SOUND | {"parameters": KMS})) == 1

    out = capsys.readouterr().out
    assert out.startswith("class fast (ebs.csi.aws.com): refused by this controller\n")
    assert "doubts\n    this controller refuses it" in out
    assert "kmsKeyId is given" in out


@pytest.mark.parametrize("name", ["\ud800", "x\x1b[31mred", "a\u202eb", "c\nlass sound"])
def test_what_is_no_visible_character_is_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path, name: str
):
    path = tmp_path / "class.yaml"
    escaped = ascii(name)[1:-1]
    path.write_text(
        f'metadata: {{name: "{escaped}"}}\nkind: StorageClass\nprovisioner: ebs.csi.aws.com'
    )

    assert checked(monkeypatch, str(path)) == 0

    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith(f"class {escaped} (ebs.csi.aws.com): ")
    assert all(line.isprintable() for line in captured.out.splitlines())


def test_a_mistake_is_escaped_too(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
):
    path = tmp_path / "\udcff\x1b[31m.yaml"

    assert checked(monkeypatch, str(path)) == 1

    captured = capsys.readouterr()
    assert captured.err.startswith("ebs-provisioner: ")
    assert captured.err[:-1].isprintable()


def test_a_binding_mode_that_kubernetes_does_not_know_is_impossible(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
):
    assert checked(monkeypatch, a_file(tmp_path, SOUND | {"volumeBindingMode": "Later"})) == 1
    assert "volumeBindingMode 'Later' is not one of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "has_advice"),
    [
        ({"parameters": {"iops": 4000}}, True),
        ({"parameters": {"encrypted": True}}, True),
        ({"parameters": {1: "x"}}, True),
        ({"parameters": {"iops": None}}, False),
        ({"parameters": ["a"]}, False),
        ({"mountOptions": "debug"}, False),
        ({"allowedTopologies": [None]}, False),
    ],
)
def test_quotes_are_advised_only_where_they_help(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    tmp_path: Path,
    fields: dict[str, object],
    *,
    has_advice: bool,
):
    assert checked(monkeypatch, a_file(tmp_path, MISSPELT | fields)) == 1

    captured = capsys.readouterr()
    assert ("true and false in quotes" in captured.err) is has_advice
