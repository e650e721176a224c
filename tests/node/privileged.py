"""What tests with real mounts need, and how their worlds are started."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.node.generate import ROOT

PROGRAMS = ("unshare", "mount", "blkid", "mkfs.ext4", "resize2fs")
TIMEOUT_S = 240.0


def lacks() -> str:
    """Why this machine cannot; "" if it can."""
    if os.geteuid() != 0:
        return "it mounts real volumes, which takes root"
    if not Path("/dev/loop-control").exists():
        return "it mounts real volumes, which takes loop devices"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"it mounts real volumes, which takes {', '.join(missing)}" if missing else ""


def run(world: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of this folder in a mount namespace of its own, to its end."""
    return subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private"),
            *(sys.executable, "-m", f"tests.node.{world}", *arguments),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
