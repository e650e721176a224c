"""Record which rules plain moto breaks, and which probes notice each mutant; some 10 minutes.

::

    .venv/bin/python -m tests.conformance.record
"""

import json
import subprocess
import sys
from typing import Any

from tests.conformance.rule_tables import RECORDED


def _run(*arguments: str) -> Any:
    command = [sys.executable, "-m", "tests.conformance.mutation", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


if __name__ == "__main__":
    plain, mutants = _run("--plain"), _run("--others")
    document = {
        name: {"plain": plain[name]["own"][0], "also": sorted(found["also"])}
        for name, found in mutants.items()
    }
    RECORDED.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
