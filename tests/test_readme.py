"""README's tables and commands against what the code has."""

import re
from pathlib import Path

from provisioner import __file__ as package_file
from provisioner.cli import controller
from provisioner.metrics import Metrics
from provisioner.model import parameters
from provisioner.model.errors import Reason
from provisioner.model.volume_type import VOLUME_TYPES
from provisioner.node.commands import node
from provisioner.node.metrics import NodeMetrics
from provisioner.node.volume_series import series_of

ROOT = Path(package_file).parents[1]
README = (ROOT / "README.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^##+ {title}\n(.*?)(?=^##? |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def quoted(text: str, pattern: str) -> set[str]:
    return set(re.findall(rf"`({pattern})`", text))


def quoted_in_turn(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def first_column(title: str, pattern: str) -> set[str]:
    rows = re.findall(r"^\| (`.+?) \|", section(title), re.MULTILINE)
    return quoted("\n".join(rows), pattern)


def test_every_option_is_in_the_table_and_no_other():
    options = {name for each in controller.params for name in (*each.opts, *each.secondary_opts)}

    assert first_column("Options", "--[a-z0-9-]+") == options - {"--help"}


def test_every_option_of_the_node_plugin_is_in_the_table_and_no_other():
    options = {name for each in node.params for name in (*each.opts, *each.secondary_opts)}

    named = first_column("Options of the node plugin", "--[a-z0-9-]+")
    assert named == options - {"--help"}


def test_every_component_of_the_manifests_is_told_about():
    folders = {path.parent.name for path in (ROOT / "manifests").glob("*/kustomization.yaml")}

    assert len(folders) > 7
    assert [each for each in folders if f"manifests/{each}" not in README] == []


def test_links_within_lead_somewhere():
    titles = re.findall(r"^##+ (.+)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}

    assert len(anchors) > 30
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) - anchors == set()


def test_every_parameter_is_in_the_table_and_no_other():
    assert first_column("StorageClass parameters", "[^`]+") == set(parameters.NAMES)
    assert set(VOLUME_TYPES) <= quoted(section("StorageClass parameters"), "[^`]+")
    assert set(parameters.FILE_SYSTEMS) <= quoted(section("StorageClass parameters"), "[^`]+")


def test_every_parameter_is_told_in_full_and_in_the_order_of_the_code():
    rows = re.findall(r"^\| (`.+) \|$", section("StorageClass parameters"), re.MULTILINE)
    cells = [row.split(" | ") for row in rows if len(row.split(" | ")) == 5]

    assert [name for row in cells for name in quoted_in_turn(row[0])] == list(parameters.NAMES)
    assert all(cell.strip() for row in cells for cell in row)
    assert quoted(cells[0][1], "[^`]+") == set(VOLUME_TYPES)


def test_every_metric_is_in_the_table_and_no_other():
    families = [each for each in Metrics().registry.collect() if each.name.startswith("ebs_")]
    named = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}

    assert {f"ebs_provisioner_{each}" for each in first_column("Metrics", "[a-z0-9_]+")} == named


def test_every_metric_of_the_node_plugin_is_in_its_table_and_no_other():
    families = [*NodeMetrics().registry.collect(), *series_of([])]
    named = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}

    told = first_column("Metrics of the node plugin", "[a-z0-9_]+")
    assert {f"ebs_provisioner_node_{each}" for each in told} == named


def test_every_finer_reason_is_in_the_table_and_no_other():
    assert first_column("Events", "[A-Z]\\w+") == {reason.value for reason in Reason}


def test_every_finer_reason_is_explained_in_whole_sentences():
    rows = re.findall(r"^\| `\w+` \| (.+) \|$", section("Events"), re.MULTILINE)
    told = [cell for row in rows for cell in row.split(" | ")]

    assert len(told) >= 2 * len(Reason)
    assert [cell for cell in told if not re.fullmatch(r"[A-Z`][^|]+\.", cell)] == []


def test_the_make_targets_and_folders_exist():
    makefile = (ROOT / "Makefile").read_text()
    folders = first_column("Develop", "[a-z_/0-9]+/")

    targets = set(re.findall(r"^(\w+): ", makefile, re.MULTILINE))

    assert set(re.findall(r"^make (\w+)", README, re.MULTILINE)) == targets - {"clean"}
    assert len(folders) > 5
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []
