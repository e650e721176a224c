"""Kustomizations as the pages and the comments say to write them, built by kubectl."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import MANIFESTS, built, kustomized, rendered
from tests.chart.stock import nested, probe
from tests.documents import section

Json = dict[str, Any]
pytestmark = built


def example(component: str) -> Json:
    """The kustomization that the comment at the top of a folder of ``manifests`` shows."""
    text = (MANIFESTS / component / "kustomization.yaml").read_text()
    (shown,) = re.findall(r"^#   resources:.*\n(?:#   .*\n)*", text, re.MULTILINE)
    found: Json = yaml.safe_load(re.sub(r"^#   ", "", shown, flags=re.MULTILINE))
    return found


def build(folder: Path, kustomization: Json, **files: Json) -> list[Json]:
    """All objects of a kustomization in this folder, as if it were beside ``manifests``."""
    folder.mkdir(exist_ok=True)
    for part in ("resources", "components"):
        paths = kustomization.get(part, ())
        below = [os.path.relpath(MANIFESTS.parent, folder) + each[2:] for each in paths]
        kustomization = kustomization | {part: below}
    kustomization["resources"] += [f"{name}.yaml" for name in files]
    for name, content in (files | {"kustomization": kustomization}).items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return kustomized(folder)


def names(objects: list[Json], kind: str) -> list[str]:
    return [each["metadata"]["name"] for each in objects if each["kind"] == kind]


def storage_class(name: str) -> Json:
    of_a_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    return of_a_class | {"metadata": {"name": name}, "provisioner": "ebs.csi.aws.com"}


def test_a_kustomization_without_our_classes_keeps_its_own(tmp_path: Path):
    objects = build(tmp_path, example("no-storage-classes"), mine=storage_class("mine"))

    assert names(objects, "StorageClass") == ["mine"]


@pytest.mark.parametrize(
    "told",
    [
        (MANIFESTS / "no-storage-classes" / "kustomization.yaml").read_text(),
        section("install", "Components"),
    ],
    ids=["comment", "page"],
)
def test_own_classes_with_our_names_are_in_a_kustomization_around_that_one(
    told: str, tmp_path: Path
):
    assert "in one that has" in " ".join(told.replace("# ", "").split())
    build(tmp_path / "base", example("no-storage-classes"))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(storage_class("ebs-gp3")))
    around = {"resources": ["base", "mine.yaml"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(around))

    assert names(kustomized(tmp_path), "StorageClass") == ["ebs-gp3"]


@pytest.mark.parametrize(
    "folder", ["webhook", "webhook-caller-token", "webhook-host-network", "webhook-volume-moves"]
)
def test_removing_the_webhook_as_applied_leaves_what_volumes_need(folder: str, tmp_path: Path):
    objects = build(tmp_path, example(folder))

    kinds = {each["kind"] for each in objects}
    assert "ValidatingWebhookConfiguration" in kinds
    assert kinds & {"CSIDriver", "StorageClass", "CustomResourceDefinition"} == set()
    assert names(objects, "Deployment") == ["ebs-webhook"]


@pytest.mark.parametrize("of", ["manifests", "chart"])
def test_in_an_emergency_one_command_removes_the_webhook_however_installed(of: str):
    told = section("troubleshooting", "An object is refused")
    ((kinds, name),) = re.findall(r"^kubectl delete (\S+) (\S+)$", told, re.MULTILINE)
    objects = (
        kustomized(MANIFESTS / "webhook")
        if of == "manifests"
        else rendered({"webhook": {"enabled": True}})
    )

    asked = [each for each in objects if each["kind"].endswith("WebhookConfiguration")]
    assert kinds.split(",") == sorted(f"{each['kind']}s".lower() for each in asked)
    assert {each["metadata"]["name"] for each in asked} == {name}


CARRIED = ("migrate", "Carry the stock settings over")


def carried() -> dict[str, str]:
    """What the page on migration has for each stock key: a literal or a component."""
    rows = re.findall(
        r"^\| `([\w.]+)(?:: \w+)?`.*? \| `(.+?)`",
        section(*CARRIED),
        re.MULTILINE,
    )
    assert len(rows) == len(dict(rows)) >= 13
    return dict(rows)


def literals(program: str) -> list[str]:
    of_program = {key: told for key, told in carried().items() if not is_component(told)}
    return [
        told if "=" in told else f"{told}=7"
        for key, told in of_program.items()
        if key.startswith(f"{program}.")
    ]


def is_component(told: str) -> bool:
    return told.startswith("manifests/")


def options(objects: list[Json]) -> set[tuple[str, str]]:
    maps = [each["data"] for each in objects if each["kind"] == "ConfigMap"]
    return {each for data in maps for each in data.items()}


@pytest.mark.parametrize("programs", [["controller"], ["controller", "node"]])
def test_the_stock_settings_go_in_when_the_page_says_so(programs: list[str], tmp_path: Path):
    """The controller comes first, without the node plugin."""
    with_node = "node" in programs
    assert "Rows of `node.*` go in with `manifests/node`" in section(*CARRIED)
    components = [
        f"../{told}"
        for key, told in carried().items()
        if is_component(told) and (with_node or not key.startswith("node."))
    ]
    generators = [
        {
            "name": f"ebs-provisioner-{program}",
            "behavior": "merge",
            "namespace": "ebs-provisioner-node" if program == "node" else "ebs-provisioner",
            "literals": literals(program),
        }
        for program in programs
    ]

    objects = build(
        tmp_path,
        {
            "resources": ["../manifests", *(["../manifests/node"] if with_node else [])],
            "components": components,
            "configMapGenerator": generators,
        },
    )

    wanted = [each.partition("=") for program in programs for each in literals(program)]
    assert {(name, value) for name, _, value in wanted} <= options(objects)


@pytest.mark.parametrize(("key", "told"), carried().items())
def test_a_stock_setting_becomes_what_our_chart_makes_of_it(key: str, told: str):
    if is_component(told):
        components = section("install-helm", "Components")
        (value,) = re.findall(rf"^\| `{told}` \| `([\w.]+)", components, re.MULTILINE)
        assert value == key
        return
    name, _, value = told.partition("=")

    changed = options(rendered(nested(key, probe(key)))) - options(rendered())

    assert [each for each, _ in changed] == [name]
    assert value in ("", "k=v,k=v", *dict(changed).values())
