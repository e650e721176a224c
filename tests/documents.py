"""README, the pages under ``docs/`` and their parts, for tests that hold them to the code."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"


def all_documents() -> list[Path]:
    """Every Markdown file that a user or a contributor reads."""
    return sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), *ROOT.glob("manifests/**/*.md")])


def yaml_documents(text: str) -> list[Any]:
    """What ``yaml.safe_load_all`` reads, in a tenth of the time where PyYAML has libyaml."""
    return list(yaml.load_all(text, _LOADER))


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def page(name: str) -> str:
    """The text of a page, by its path within docs and without its ending."""
    return (DOCS / f"{name}.md").read_text()


def section(name: str, title: str) -> str:
    """What stands under a heading of a page, smaller headings included."""
    pattern = rf"^(##+) {re.escape(title)}\n(.*?)(?=^##? |\Z)"
    found = re.search(pattern, page(name), re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/{name}.md has no heading {title!r}"
    return found[2]


def quoted(text: str, pattern: str) -> set[str]:
    """What stands alone between backticks."""
    return set(re.findall(rf"`({pattern})`", text))


def first_column(text: str, pattern: str) -> set[str]:
    """What stands between backticks in the first column of a text's tables."""
    rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    return quoted("\n".join(rows), pattern)


def without_code(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Those that GitHub gives to the headings of a page; a heading of twice has only the first."""
    titles = re.findall(r"^#+ (.+)$", without_code(text), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in plain}


def links(text: str) -> list[str]:
    """The targets of all links outside of code."""
    return re.findall(r"\]\(([^)\s]+)\)", without_code(text))
