"""README and docs against what the code has: links, tables, commands, names of files."""

import re
from pathlib import Path

import pytest

from provisioner.classes import storage_class_rules
from provisioner.cli import controller
from provisioner.inspect.explain.chain_rules import Cause
from provisioner.metrics import Metrics
from provisioner.model import names
from provisioner.model.errors import Reason
from provisioner.model.file_systems import FILE_SYSTEMS
from provisioner.model.volume_type import VOLUME_TYPES
from provisioner.node.commands import node
from provisioner.node.metrics.collector import series_of
from provisioner.node.metrics.counters import NodeMetrics
from tests.documents import (
    DOCS,
    README,
    ROOT,
    all_documents,
    anchors,
    first_column,
    links,
    page,
    quoted,
    section,
    without_code,
)

DOCUMENTS = all_documents()
MOST_LINES, MOST_LINES_OF_README = 400, 160
PAGES = {
    *(
        "install",
        "image",
        "install-helm",
        "migrate",
        "move",
        "upgrading",
        "storage-classes",
        "volumes",
        "zones",
        "nodes",
        "formatting",
    ),
    *("neighbours", "costs", "orphans", "kubectl-ebs"),
    *("explain", "webhook", "troubleshooting", "alerts", "dashboard", "kubernetes-versions"),
    *(
        f"reference/{name}"
        for name in (
            *("options", "metrics", "events", "causes", "mount-options", "iam", "rbac", "e2e"),
            *("ec2-rules", "conformance-aws", "chart-values"),
        )
    ),
    *(
        f"reference/messages/{name}"
        for name in ("controller", "moving", "node", "webhook", "shared")
    ),
    *(
        f"design/{name}"
        for name in (
            "architecture",
            "decisions",
            "crashes",
            "performance",
            "scale",
            "sandbox",
            "glossary",
        )
    ),
}
FOLDERS = ("provisioner", "webhook", "tests", "manifests", "docs", ".ci")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_pages_are_those_that_were_planned():
    found = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.glob("**/*.md")}

    assert found - {"README", "examples/README", "reference/messages/README"} == PAGES


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_no_page_is_too_long(path: Path):
    most = MOST_LINES_OF_README if path == README else MOST_LINES

    assert len(path.read_text().splitlines()) <= most


def targets(path: Path) -> list[tuple[str, str]]:
    """The links to other files and within, each as a path from the root and an anchor."""
    found = []
    for link in links(path.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        there = (path.parent / file).resolve() if file else path
        found.append((str(there), anchor))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading_of_it(path: Path):
    lost = [
        f"{there}#{anchor}"
        for there, anchor in targets(path)
        if not Path(there).exists()
        or not Path(there).is_relative_to(ROOT)
        or (anchor and anchor not in anchors(Path(there).read_text()))
    ]

    assert lost == []


def test_the_links_and_headings_are_found():
    assert sum(len(targets(path)) for path in DOCUMENTS) > 150
    assert anchors("# A `b`, c-d\n```sh\n# no heading\n```\n## 2. [E](f)?\n") == {"a-b-c-d", "2-e"}
    assert links("[a](b.md#c)\n```\n[no](d)\n```\n") == ["b.md#c"]


def test_the_index_names_every_page():
    named = {there for there, _ in targets(DOCS / "README.md")}

    assert {str(DOCS / f"{name}.md") for name in PAGES} - named == set()
    assert str(DOCS / "README.md") in {there for there, _ in targets(README)}


def test_every_example_is_in_the_list_of_examples():
    named = {there for there, _ in targets(DOCS / "examples/README.md")}

    assert {str(path) for path in DOCS.glob("examples/**/*.yaml")} - named == set()


def files_named_in(text: str) -> list[str]:
    """What begins with a folder of the repository, and what ``python -m tests.…`` runs."""
    starts = "|".join(map(re.escape, FOLDERS))
    named = re.findall(rf"(?<![\w/.-])((?:{starts})/[\w./-]*)", text)
    # Tables leave out the folder that all of their files are in.
    named += [
        path if (ROOT / path).exists() else f"provisioner/{path}"
        for path in re.findall(r"`((?!/)[\w./-]+/[\w.-]+\.py)`", text)
    ]
    return named + [f"tests/{each}" for each in re.findall(r"-m tests\.([a-z0-9_]+)", text)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_file_that_is_named_exists(path: Path):
    if path.name == "CHANGELOG.md":
        return  # it tells of files that were removed, too

    def is_there(name: str) -> bool:
        exact = ROOT / name.rstrip(".")
        return exact.exists() or exact.with_name(f"{exact.name}.py").exists()

    assert [name for name in files_named_in(path.read_text()) if not is_there(name)] == []


def test_the_names_of_files_are_found():
    text = (ROOT / "CONTRIBUTING.md").read_text()

    assert {"tests/test_layout.py", "webhook/", ".ci/run"} <= set(files_named_in(text))
    assert files_named_in("`tests/nowhere.py`; -m tests.nothing") == [
        "tests/nowhere.py",
        "provisioner/tests/nowhere.py",
        "tests/nothing",
    ]
    assert files_named_in("`node/nowhere.py`") == ["provisioner/node/nowhere.py"]


def test_every_folder_at_the_top_is_told_about():
    ours = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."}
    told = first_column((ROOT / "CONTRIBUTING.md").read_text(), "[a-z_/0-9]+/")

    assert ours - {"build", "dist"} == {folder.partition("/")[0] for folder in told}


def options_of(command: object) -> set[str]:
    params = command.params  # type: ignore[attr-defined]
    return {name for each in params for name in (*each.opts, *each.secondary_opts)} - {"--help"}


@pytest.mark.parametrize(("title", "command"), [("Controller", controller), ("Node plugin", node)])
def test_every_option_is_in_the_table_and_no_other(title: str, command: object):
    told = first_column(section("reference/options", title), "--[a-z0-9-]+")

    assert told == options_of(command)


def test_every_component_of_the_manifests_is_told_about():
    folders = {path.parent.name for path in (ROOT / "manifests").glob("*/kustomization.yaml")}
    text = page("install")

    assert len(folders) > 7
    assert [each for each in folders if f"manifests/{each}" not in text] == []


def test_what_only_helm_4_knows_is_told_with_what_helm_3_takes():
    lines = [line for line in page("install-helm").splitlines() if "--force-conflicts" in line]

    assert len(lines) > 2
    assert [line for line in lines if "Helm 4" not in line] == []


def test_every_parameter_is_in_the_table_and_no_other():
    table = section("storage-classes", "Parameters")

    assert first_column(table, "[^`]+") == set(storage_class_rules.NAMES)
    assert set(VOLUME_TYPES) <= quoted(table, "[^`]+")
    assert set(FILE_SYSTEMS) <= quoted(table, "[^`]+")


def test_every_parameter_is_told_in_full_and_in_the_order_of_the_code():
    rows = re.findall(r"^\| (`.+) \|$", section("storage-classes", "Parameters"), re.MULTILINE)
    cells = [row.split(" | ") for row in rows if len(row.split(" | ")) == 5]

    told = [name for row in cells for name in re.findall(r"`([^`]+)`", row[0])]
    assert told == list(storage_class_rules.NAMES)
    assert all(cell.strip() for row in cells for cell in row)
    assert quoted(cells[0][1], "[^`]+") == set(VOLUME_TYPES)


def test_every_metric_is_in_the_table_and_no_other():
    metrics = Metrics()
    every = [*metrics.registry.collect(), *metrics.volume_usd_per_month.collect()]
    families = [each for each in every if each.name.startswith("ebs_")]
    named = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}

    told = first_column(section("reference/metrics", "Controller"), "[a-z0-9_]+")
    assert {f"ebs_provisioner_{each}" for each in told} == named


def test_every_metric_of_the_node_plugin_is_in_its_table_and_no_other():
    families = [*NodeMetrics().registry.collect(), *series_of([])]
    named = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}

    told = first_column(section("reference/metrics", "Node plugin"), "[a-z0-9_]+")
    assert {f"ebs_provisioner_node_{each}" for each in told} == named


def test_every_finer_reason_is_in_the_table_and_no_other():
    told = first_column(section("reference/events", "Reasons"), "[A-Z]\\w+")

    assert told == {reason.value for reason in Reason}


def test_every_finer_reason_is_explained_in_whole_sentences():
    table = section("reference/events", "Reasons")
    rows = re.findall(r"^\| `\w+` \| (.+) \|$", table, re.MULTILINE)
    told = [cell for row in rows for cell in row.split(" | ")]

    assert len(told) >= 2 * len(Reason)
    assert [cell for cell in told if not re.fullmatch(r"[A-Z`][^|]+\.", cell)] == []


def test_every_reason_of_an_event_is_in_the_table():
    sources = [*ROOT.glob("provisioner/**/*.py"), *ROOT.glob("webhook/**/*.py")]
    pattern = r"(?:reason=|event\(claim, |_record\(node, )\"([A-Z]\w+)\""
    recorded = {
        reason
        for path in sources
        if "sandbox" not in path.parts
        for reason in re.findall(pattern, path.read_text())
    }

    assert {"ProvisioningFailed", "VolumeFailedDelete", "VolumeResizeFailed"} <= recorded
    assert recorded - quoted(section("reference/events", "Events"), "[A-Z]\\w+") == set()


def test_troubleshooting_names_only_reasons_and_causes_that_there_are():
    text = re.sub(r"^.*own\).*$", "", page("troubleshooting"), flags=re.MULTILINE)
    words = quoted(without_code(text), "[A-Z][a-z]+(?:[A-Z][a-zA-Z]+)+")
    events = quoted(section("reference/events", "Events"), "[A-Z]\\w+")
    of_kubernetes = {
        *("WaitForFirstConsumer", "ExternalProvisioning", "FileSystemResizePending"),
        *("ControllerResizeError", "ModifyVolumeError", "FailedAttachVolume", "FailedMount"),
        *("FailedMapVolume", "FailedPreStopHook"),
    }

    assert len(words) > 30
    known = {each.value for each in (*Reason, *Cause)}
    assert words - known - events - of_kubernetes == set()


def test_every_key_of_ours_is_in_the_table_and_no_other():
    pattern = r"ebs-provisioner\.io/[a-z][a-z-]+"
    sources = [
        *ROOT.glob("provisioner/**/*.py"),
        *ROOT.glob("webhook/**/*.py"),
        *ROOT.glob("manifests/**/*.yaml"),
    ]
    known = {key for path in sources for key in re.findall(pattern, path.read_text())}
    known |= {
        value
        for value in vars(names).values()
        if isinstance(value, str) and re.fullmatch(pattern, value)
    }

    assert len(known) > 15
    table = section("reference/options", "Annotations, labels and tags")
    assert first_column(table, pattern) == known


def test_the_make_targets_and_folders_exist():
    makefile = (ROOT / "Makefile").read_text()
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    folders = first_column(contributing, "[a-z_/0-9]+/")

    targets = set(re.findall(r"^([\w-]+): ", makefile, re.MULTILINE))

    told = set(re.findall(r"^make ([\w-]+)", contributing, re.MULTILINE))
    assert told == targets - {"clean"}
    assert set(re.findall(r"^make ([\w-]+)", README.read_text(), re.MULTILINE)) <= targets
    assert len(folders) >= 5
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_readme_shows_the_first_of_the_examples():
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)

    assert (DOCS / "examples/first-volume.yaml").read_text().partition("\n")[2] == shown


def test_the_page_about_installing_shows_the_kustomization_of_the_examples():
    shown = re.findall(r"^```yaml\n(.*?)^```", page("install"), re.MULTILINE | re.DOTALL)
    example = (DOCS / "examples/my-cluster/kustomization.yaml").read_text()

    assert example.partition("kind: Kustomization\n")[2] == shown[0]


def test_the_figures_in_readme_are_those_of_the_page_about_performance():
    pattern = r"^\| ([^|]+ \| [\d.]+ s \| [\d.]+ s) \|"
    shown = re.findall(pattern, README.read_text(), re.MULTILINE)

    assert len(shown) == 4
    full = re.findall(pattern, page("design/performance"), re.MULTILINE)
    assert shown == full[:4]
    figures = re.findall(
        r"\d+\.\d+ \w+|\d+ of \d+", README.read_text().partition("## Speed")[2].partition("## ")[0]
    )
    assert len(figures) > 8
    assert [each for each in figures if each not in page("design/performance")] == []
    machine = (
        r"On (\d{4}-\d\d-\d\d), (\d+ cores \([^)]+\), \d+ GiB, Python [\d.]+, Kubernetes [\d.]+)"
    )
    (measured,) = re.findall(machine, page("design/performance"))
    assert f"on {measured[0]}, {measured[1]}" in README.read_text()


def test_each_test_that_the_threat_model_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }

    assert len(named) > 10
    assert named - there == set()
