"""``ebs-provisioner class check``: reads a class from a file or the cluster, and reports on it.

A file needs no cluster. Of the cluster, it reads the class, the nodes and the CSINodes. It never
asks EC2.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from provisioner.inspect.classes import check_rules as rules
from provisioner.inspect.classes.check_rules import Check, Findings, NodeZone
from provisioner.model.node import CsiNode, Node
from provisioner.model.storage_class import StorageClass

STANDARD_INPUT = "-"
_ENDINGS = (".yaml", ".yml", ".json")
_KIND = "StorageClass"
_QUOTES = "parameters are strings: put numbers, true and false in quotes"
_UNQUOTED = re.compile(r"Expected `str`, got `(int|float|bool)` - at .*`\$\.parameters.*`")


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of the command.

    Attributes:
        what: a file, ``-`` for standard input, or the name of a class in the cluster.
        kubeconfig: the cluster; None for the default one, or for none with a file.
        driver: the driver whose classes are checked, besides in-tree ones.
        default_file_system: the controller's, for classes that name none.
    """

    what: str
    kubeconfig: str | None
    driver: str
    default_file_system: str

    @property
    def is_file(self) -> bool:
        """Whether a file is meant: names of classes have no slash, and rarely end like files."""
        what = self.what
        return what == STANDARD_INPUT or "/" in what or what.endswith(_ENDINGS)


async def answer(question: Question) -> tuple[list[str], bool]:
    """The lines to be printed, and whether every class can work here.

    Raises:
        ValueError: one line: the file cannot be read or has no class.
        KubeError: the cluster cannot be asked, or has no such class.
    """
    classes = read_file(question.what) if question.is_file else []
    nodes: list[NodeZone] | None = None
    if not question.is_file or question.kubeconfig is not None:
        found, nodes = await _read_cluster(question)
        classes = [found] if found is not None else classes
    lines: list[str] = []
    sound = True
    for each in classes:
        if not each.is_of(question.driver):
            lines.append(f"class {each.name} ({each.provisioner}): belongs to another driver")
            continue
        check = rules.check(each, default_file_system=question.default_file_system, nodes=nodes)
        lines += report(each, check)
        sound = sound and check.findings.works
    return lines, sound


def read_file(name: str) -> list[StorageClass]:
    """The classes in a file of YAML or JSON; other objects in it are skipped.

    Raises:
        ValueError: it cannot be read, or has no class.
    """
    where = "standard input" if name == STANDARD_INPUT else name
    try:
        text = sys.stdin.read() if name == STANDARD_INPUT else Path(name).read_text("utf-8")
        documents = list(yaml.safe_load_all(text))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{where}: {' '.join(str(error).split())}") from error
    objects = [each for document in documents for each in _objects(document)]
    classes = [each for each in objects if each.get("kind") == _KIND]
    if not classes:
        raise ValueError(f"{where}: contains no {_KIND}")
    return [_class_of(each, where) for each in classes]


def report(storage_class: StorageClass, check: Check) -> list[str]:
    """The report on one class, line by line."""
    found = check.findings
    blocks = {
        "parameters": check.effects,
        "claims": check.sizes,
        "impossible": [("", text) for text in found.impossible],
        "doubts": [("", text) for text in found.doubts],
    }
    lines = [f"class {storage_class.name} ({storage_class.provisioner}): {_verdict(found)}"]
    for title, rows in blocks.items():
        if rows:
            lines += [f"  {title}", *_aligned(rows)]
    return lines


def _verdict(found: Findings) -> str:
    if found.impossible:
        return "can never work"
    if not found.works:
        return "refused by this controller"
    return "works, with doubts" if found.doubts else "works"


def _aligned(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max(len(first) for first, _ in rows)
    for first, second in rows:
        yield f"    {first.ljust(width)}  {second}" if width else f"    {second}"


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    """The object that a document is, and those in it if it is a List."""
    if isinstance(document, dict):
        yield document
        items = document.get("items")
        if isinstance(items, list):
            yield from (each for each in items if isinstance(each, dict))


def _class_of(document: dict[str, Any], where: str) -> StorageClass:
    try:
        return msgspec.convert(document, StorageClass)
    except msgspec.ValidationError as error:
        wrong = str(error)
        advice = f"; {_QUOTES}" if _UNQUOTED.fullmatch(wrong) else ""
        raise ValueError(f"{where}: invalid {_KIND}: {wrong}{advice}") from error


async def _read_cluster(question: Question) -> tuple[StorageClass | None, list[NodeZone]]:
    # Importing kubernetes takes a quarter of a second, and a file does not need it.
    from provisioner.kube.client import KubeClient  # noqa: PLC0415
    from provisioner.kube.resources import CSI_NODES, NODES, STORAGE_CLASSES  # noqa: PLC0415

    async with await KubeClient.connect(kubeconfig=question.kubeconfig) as client:
        found = None
        if not question.is_file:
            found = await client.get(STORAGE_CLASSES, question.what)
        nodes = await client.list(NODES)
        csi_nodes = await client.list(CSI_NODES)
    return found, node_zones(nodes.items, csi_nodes.items, question.driver)


def node_zones(nodes: Sequence[Node], csi_nodes: Sequence[CsiNode], driver: str) -> list[NodeZone]:
    """Where nodes are, and on which of them the driver is registered."""
    registered = {each.name for each in csi_nodes if each.driver(driver) is not None}
    return [rules.node_zone(node.labels, has_driver=node.name in registered) for node in nodes]
