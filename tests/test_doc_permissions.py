"""The tables of rights in docs are what the manifests give."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from tests.documents import ROOT, section

MANIFESTS = ROOT / "manifests"
VERBS = frozenset({"get", "list", "watch", "create", "patch", "update", "delete"})


def granted(*paths: Path) -> dict[str, set[str]]:
    """The verbs of each resource, of all rules together."""
    rights: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for document in yaml.safe_load_all(path.read_text()):
            for rule in document.get("rules", ()):
                for resource in rule["resources"]:
                    rights[resource] |= set(rule["verbs"])
    return dict(rights)


def told(title: str) -> dict[str, set[str]]:
    """The same of the table in a section; what stands in parentheses is left out."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section("reference/rbac", title), re.MULTILINE)
    rights: dict[str, set[str]] = defaultdict(set)
    for resources, verbs in rows[1:]:
        words = set(re.findall(r"[a-z]+", re.sub(r" \(.*\)", "", verbs)))
        for resource in re.findall(r"[a-z]+(?:/[a-z]+)?", re.sub(r" \(.*\)", "", resources)):
            assert resource not in rights, f"{resource} is there twice"
            rights[resource] = words & VERBS
    return dict(rights)


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Controller", ("rbac.yaml", "release-dead-nodes/rbac.yaml", "volume-moves/rbac.yaml")),
        ("People who move claims", ("volume-moves/mover.yaml",)),
        ("Node plugin", ("node/rbac.yaml",)),
        ("Webhook", ("webhook/rbac.yaml", "webhook-volume-moves/rbac.yaml")),
    ],
)
def test_the_table_of_rights_is_what_the_manifests_give(title: str, names: tuple[str, ...]):
    assert told(title) == granted(*(MANIFESTS / name for name in names))


COUNTED = {"A": 1, "Three": 3, "Four": 4, "Five": 5, "Six": 6}
SAID_OF = (
    r"\b([A-Z]\w*) (?:ValidatingAdmissionPolic|more come)[^`]*`(manifests/[\w/-]+)(?:\.yaml)?`"
)


def test_the_page_of_rights_counts_the_policies_that_hold_the_accounts():
    page = section("reference/rbac", "Controller") + section("reference/rbac", "Webhook")

    said = {name: COUNTED[word] for word, name in re.findall(SAID_OF, page)}

    assert said == {
        "manifests/policy": policies(MANIFESTS / "policy.yaml"),
        "manifests/volume-moves": policies(MANIFESTS / "volume-moves" / "policy.yaml"),
        "manifests/webhook/policy": policies(MANIFESTS / "webhook" / "policy.yaml"),
    }


def policies(path: Path) -> int:
    """How many a file has, without their bindings."""
    kinds = [each["kind"] for each in yaml.safe_load_all(path.read_text())]
    return kinds.count("ValidatingAdmissionPolicy")
