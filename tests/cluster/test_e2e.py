"""A few of Kubernetes' storage tests, by the command that runs them all, from start to end."""

import asyncio
import sys
from pathlib import Path

import pytest

from provisioner.sandbox.binaries import find_binaries
from provisioner.sandbox.programs import CONTROL_PLANE, E2E, REAL_NODE
from provisioner.sandbox.real_node import requirements

FOCUS = r"\((default fs|block volmode)\)\] volumes should store data"
PATIENCE_S = 240.0


@pytest.fixture(autouse=True)
def suite_is_there():
    if why := requirements.missing():
        pytest.skip(why)
    if find_binaries(programs=(*CONTROL_PLANE, *REAL_NODE, *E2E)) is None:
        pytest.skip("Kubernetes' storage tests are not built")


async def test_the_storage_suite_passes_and_leaves_nothing(tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.e2e", "--quick", "--focus", FOCUS, "--out", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()

    said = output.decode()
    assert process.returncode == 0, said
    # Those of inline and pre-provisioned volumes: before Kubernetes 1.37 they skip themselves, since
    # then they do not exist for a driver without such volumes.
    assert "2 tests: 2 passed, 0 failed, 0 skipped themselves" in said or (
        "5 tests: 2 passed, 0 failed, 3 skipped themselves" in said
    )
    assert "| volumes | 2 | 0 | " in (tmp_path / "table.md").read_text()
    assert 'tests="' in (tmp_path / "runs/plain/junit.xml").read_text()
    assert list((tmp_path / "sandbox").iterdir()) == [tmp_path / "sandbox/logs"]
