"""How the tests read an API server's audit log; without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.cluster.audit import records, records_of


def line(account: str, verb: str) -> str:
    return json.dumps({"user": {"username": account}, "verb": verb}) + "\n"


def test_all_files_of_the_log_are_read_and_no_line_that_is_still_being_written(tmp_path: Path):
    ours, other = "system:serviceaccount:ours:a", "system:serviceaccount:ours:ab"
    (tmp_path / "audit-2026-11-23.log").write_text(line(ours, "get") + line("admin", "patch"))
    # What there is of the last line ends with a brace, but not as a line does.
    half = line(ours, "watch").partition("},")[0] + "}"
    (tmp_path / "audit.log").write_text(line(ours, "list") + line(other, "delete") + half)
    sandbox: Any = SimpleNamespace(plane=SimpleNamespace(audit_log=tmp_path / "audit.log"))

    assert {each["verb"] for each in records(sandbox, ours)} == {"get", "list"}
    all_of_ours = records_of(sandbox, "system:serviceaccount:ours:")
    assert {each["verb"] for each in all_of_ours} == {"get", "list", "delete"}
