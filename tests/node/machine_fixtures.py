"""The fixture of tests that need loop devices and mounts; skipped with the reason elsewhere."""

from collections.abc import Iterator

import pytest

from tests.node.machine import Machine, why_not


@pytest.fixture
def machine(tmp_path) -> Iterator[Machine]:
    if reason := why_not():
        pytest.skip(reason)
    found = Machine(tmp_path.resolve())
    try:
        yield found
    finally:
        found.clean()
