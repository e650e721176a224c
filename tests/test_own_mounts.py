"""What tests mount is theirs alone."""

import os
from pathlib import Path

import pytest


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have mounts of its own")
def test_another_process_that_runs_tests_sees_none_of_our_mounts() -> None:
    ours, theirs = (Path(f"/proc/{who}/ns/mnt").readlink() for who in ("self", os.getppid()))

    assert ours != theirs
