"""README's table of the controller's rights is what the manifests give."""

import re
from collections import defaultdict
from pathlib import Path

import yaml

from tests.readme_tables import README

MANIFESTS = README.parent / "manifests"
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


def told(readme: str) -> dict[str, set[str]]:
    """The same of the first table in the chapter; what stands in parentheses is left out."""
    chapter = readme.partition("\n## Permissions\n")[2]
    rows = re.findall(
        r"^\| (.+?) \| (.+?) \|$", chapter.partition("\nThe node plugin's")[0], re.MULTILINE
    )
    rights: dict[str, set[str]] = defaultdict(set)
    for resources, verbs in rows[1:]:
        words = set(re.findall(r"[a-z]+", re.sub(r" \(.*\)", "", verbs)))
        for resource in re.findall(r"[a-z]+(?:/[a-z]+)?", resources.partition(" in ")[0]):
            assert resource not in rights, f"{resource} is there twice"
            rights[resource] = words & VERBS
    return dict(rights)


def test_the_table_of_rights_is_what_the_manifests_give():
    paths = (MANIFESTS / "rbac.yaml", MANIFESTS / "release-dead-nodes" / "rbac.yaml")

    assert told(README.read_text()) == granted(*paths)
