"""``ebs-provisioner class check``, over files, and what is told of a class."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provisioner import cli
from provisioner.inspect.classes import check as class_check
from provisioner.inspect.classes import check_rules as rules
from provisioner.inspect.classes.check import Question, node_zones, read_file, report
from provisioner.inspect.classes.check_rules import NodeZone
from provisioner.model.storage_class import StorageClass
from tests.builders import DRIVER, a_csi_node, a_node
from tests.documents import section

Captured = pytest.CaptureFixture[str]
A = "us-east-1a"
SOUND = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast"},
    "provisioner": DRIVER,
    "parameters": {"type": "gp3", "iops": "4000"},
    "volumeBindingMode": "WaitForFirstConsumer",
}
MISSPELT = SOUND | {"metadata": {"name": "slow"}, "parameters": {"typ": "sc1"}}


def checked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ebs-provisioner", "class", "check", *arguments])
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def a_file(tmp_path: Path, *documents: Any, name: str = "class.yaml") -> str:
    path = tmp_path / name
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_a_sound_class_is_told_and_ends_well(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
):
    assert checked(monkeypatch, a_file(tmp_path, SOUND)) == 0

    out = capsys.readouterr().out
    assert out.startswith("class fast (ebs.csi.aws.com): works\n")
    assert "4,000 IOPS for every volume" in out


def test_a_class_that_can_never_work_ends_with_1_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
):
    assert checked(monkeypatch, a_file(tmp_path, MISSPELT, SOUND)) == 1

    out = capsys.readouterr().out
    assert "class slow (ebs.csi.aws.com): can never work" in out
    assert "'typ'" in out.partition("impossible")[2]


def test_a_doubt_ends_well(monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path):
    at_once = {key: value for key, value in SOUND.items() if key != "volumeBindingMode"}

    assert checked(monkeypatch, a_file(tmp_path, at_once)) == 0

    assert "doubts\n    it binds immediately" in capsys.readouterr().out


def test_what_belongs_to_another_driver_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
):
    others = MISSPELT | {"provisioner": "efs.csi.aws.com"}

    assert checked(monkeypatch, a_file(tmp_path, others)) == 0
    assert capsys.readouterr().out == "class slow (efs.csi.aws.com): belongs to another driver\n"


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: Captured):
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(SOUND)))

    assert checked(monkeypatch, "-") == 0
    assert "class fast" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: Pod", "contains no StorageClass"),
        ("", "contains no StorageClass"),
        ("[1, 2]", "contains no StorageClass"),
        ("{", "class.yaml: "),
        ("[" * 2_000, "class.yaml: "),
        ("- !!python/object:os.system x", "class.yaml: "),
        ("kind: StorageClass\nparameters: {iops: 4000}", "true and false in quotes"),
        ("kind: StorageClass\nparameters: {encrypted: true}", "true and false in quotes"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path, text: str, says: str
):
    path = tmp_path / "class.yaml"
    path.write_text(text)

    assert checked(monkeypatch, str(path)) == 1

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("ebs-provisioner: ")
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_a_file_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
):
    assert checked(monkeypatch, str(tmp_path / "none.yaml")) == 1
    assert "No such file" in capsys.readouterr().err


def test_lists_are_looked_into(tmp_path: Path):
    kubectls = {"kind": "List", "items": [{"kind": "Pod"}, SOUND, MISSPELT]}

    found = read_file(a_file(tmp_path, kubectls))

    assert [each.name for each in found] == ["fast", "slow"]


@pytest.mark.parametrize(
    ("what", "is_file"),
    [("fast", False), ("fast.io2", False), ("-", True), ("a/b", True), ("fast.yml", True)],
)
def test_files_are_told_from_names(what, is_file):
    assert Question(what, None, DRIVER, "ext4").is_file is is_file


def test_the_classes_of_the_manifests_are_sound():
    classes = read_file(str(Path(cli.__file__).parents[1] / "manifests" / "storage-classes.yaml"))

    assert len(classes) > 1
    for each in classes:
        found = rules.findings(each, [NodeZone(A, has_driver=True)])
        assert found == rules.Findings()


def test_docs_show_what_is_told():
    shown = section("storage-classes", "Check a class")
    [document] = re.findall(r"```yaml\n(.+?)```", shown, re.DOTALL)
    [output] = re.findall(r"```\n\$ ebs-provisioner class check .+?\n(.+?)\n```", shown, re.DOTALL)
    storage_class = msgspec.convert(yaml.safe_load(document), StorageClass)

    check = rules.check(storage_class, default_file_system="ext4")

    assert output.splitlines() == report(storage_class, check)


def test_nodes_are_located_by_their_labels():
    nodes = node_zones(
        [a_node("node-1"), a_node("node-2"), a_node("node-3", zone=None)],
        [a_csi_node("node-1"), a_csi_node("node-2", driver=None), a_csi_node("node-9")],
        DRIVER,
    )

    assert nodes == [
        NodeZone(A, has_driver=True),
        NodeZone(A, has_driver=False),
        NodeZone("", has_driver=False),
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(max_size=200) | st.text("kindStorageClass:{}[]-&*! \n'\"0123456789.", max_size=80)
)
def test_no_text_is_anything_but_classes_or_one_sentence(tmp_path: Path, text: str):
    path = tmp_path / "class.yaml"
    path.write_text(f"kind: StorageClass\n{text}", encoding="utf-8", errors="surrogatepass")

    try:
        classes = class_check.read_file(str(path))
    except ValueError as error:
        said = str(error)
    else:
        said = f"{len(classes)} of them"

    assert said.count("\n") == 0
    assert not said.startswith("0 ")
