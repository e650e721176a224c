"""A containerd of the tests' own, in which the image runs as it would on a node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_START_S = 20
_PROGRAMS = ("containerd", "ctr", "runc")


def require() -> None:
    """Skip the test where no container can be run."""
    if os.geteuid() != 0:
        pytest.skip("running a container needs root")
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"running a container needs {', '.join(missing)}")


class Engine:
    """Runs one image; ``folder`` is short, because sockets' paths are."""

    def __init__(self, folder: Path, archive: Path) -> None:
        self.folder, self._archive = folder, archive
        self._ctr = ["ctr", "--address", f"{folder}/sock"]
        self.image = ""

    @classmethod
    @contextmanager
    def of(cls, archive: Path) -> Iterator[Engine]:
        """Run containerd and import an archive."""
        folder = Path(tempfile.mkdtemp(prefix="img"))
        engine = cls(folder, archive)
        config = folder / "config.toml"
        config.write_text(
            f'version = 2\nroot = "{folder}/root"\nstate = "{folder}/state"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{folder}/sock"\n'
        )
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                ["containerd", "--config", str(config)], stdout=log, stderr=log
            )
        try:
            engine._import()
            yield engine
        finally:
            process.terminate()
            process.wait(30)
            shutil.rmtree(folder, ignore_errors=True)

    def _import(self) -> None:
        deadline = time.monotonic() + _START_S
        while subprocess.run([*self._ctr, "version"], capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        self._call("image", "import", str(self._archive))
        [self.image] = self._call("image", "ls", "--quiet").stdout.split()

    def _call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._ctr, *argv], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done

    def argv(self, name: str, *command: str, options: Sequence[str] = ()) -> list[str]:
        """Return what runs a container as its image says, with a root that is read-only."""
        return [*self._ctr, "run", "--rm", "--read-only", *options, self.image, name, *command]

    def run(self, name: str, *command: str) -> str:
        """Run a program to its end; return what it prints."""
        argv = self.argv(name, *command)[len(self._ctr) :]
        return self._call(*argv).stdout

    def end(self, name: str) -> None:
        """Kill a container that runs, and wait until it is gone."""
        for argv in (
            ("task", "kill", "--signal", "SIGKILL", name),
            ("task", "delete", "--force", name),
            ("container", "delete", name),
        ):
            subprocess.run([*self._ctr, *argv], capture_output=True, check=False, timeout=30)

    def run_as_the_node_plugin(self, script: str) -> str:
        """Run Python as root with the plugin's rights and the machine's /dev, as the DaemonSet does.

        By runc itself, because ctr cannot say which user.
        """
        bundle = self.folder / "bundle"
        root = bundle / "rootfs"
        root.mkdir(parents=True)
        self._call("image", "mount", self.image, str(root))
        try:
            subprocess.run(["runc", "spec"], cwd=bundle, check=True)
            path = bundle / "config.json"
            path.write_text(json.dumps(_privileged(json.loads(path.read_text()), script)))
            done = subprocess.run(
                ["runc", "--root", str(self.folder / "runc"), "run", "node"],
                cwd=bundle,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        finally:
            self._call("image", "unmount", str(root))
            shutil.rmtree(bundle)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _privileged(spec: dict[str, Any], script: str) -> dict[str, Any]:
    """What manifests/node/daemonset.yaml asks for: privileged, a read-only root, /dev, a tmpfs."""
    process = spec["process"]
    process |= {"terminal": False, "args": ["python3", "-c", script]}
    process["user"] = {"uid": 0, "gid": 0}
    process["noNewPrivileges"] = False
    # Those that the plugin uses; root of a machine of CI has not all others.
    used = ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE"]
    process["capabilities"] = dict.fromkeys(("bounding", "effective", "permitted"), used)
    spec["root"] = {"path": "rootfs", "readonly": True}
    spec["linux"]["resources"] = {"devices": [{"allow": True, "access": "rwm"}]}
    spec["linux"]["maskedPaths"] = spec["linux"]["readonlyPaths"] = []
    kept = [each for each in spec["mounts"] if each["destination"] in {"/proc", "/sys"}]
    dev = {"destination": "/dev", "source": "/dev", "type": "bind", "options": ["rbind", "rw"]}
    tmp = {"destination": "/tmp", "source": "tmpfs", "type": "tmpfs", "options": ["rw"]}  # noqa: S108 -- of the container
    spec["mounts"] = [*kept, dev, tmp]
    return spec
