"""The table of README that is made from a table in the code, between two markers.

::

    .venv/bin/python -m tests.readme_tables     # writes them anew
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from provisioner.decide import mount_options

README = Path(__file__).parents[1] / "README.md"
COMMAND = "python -m tests.readme_tables"
TABLES: Mapping[str, Callable[[], str]] = {
    "mount options": mount_options.markdown,
}


def marked(name: str, text: str) -> str:
    """A table with its markers, as it stands in README."""
    return f"<!-- {name}: made by {COMMAND} -->\n\n{text}\n\n<!-- end of {name} -->"


def found(name: str, readme: str) -> str:
    """What stands in README now, its markers included; "" for nothing."""
    pattern = rf"<!-- {name}: .*?<!-- end of {name} -->"
    match = re.search(pattern, readme, re.DOTALL)
    return match[0] if match else ""


def written(readme: str) -> str:
    """README with all tables as the code has them."""
    for name, table in TABLES.items():
        old = found(name, readme)
        if not old:
            raise SystemExit(f"README has no marker <!-- {name}: … --> with its end")
        readme = readme.replace(old, marked(name, table()))
    return readme


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
    sys.stdout.write(f"{', '.join(TABLES)}: written\n")
