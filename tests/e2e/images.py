"""The images that the suite's pods name, made of programs of this machine and of agnhost."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import image

_NAME = re.compile(r"^registry\.k8s\.io/(?:[\w-]+/)?(?P<name>[\w-]+):[\w.-]+$")
_SLEEP = {"Entrypoint": ["/bin/sleep", "2147483647"]}
_SHELL = {"Cmd": ["sh"]}
RUNS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "busybox": _SHELL,
    "agnhost": {"Entrypoint": ["/agnhost"], "Cmd": ["pause"]},
    "pause": _SLEEP,
    # Its tests run commands of busybox in it, and no web server.
    "nginx": _SHELL,
    # GNU's dd, for busybox' knows no oflag=nocache.
    "glibc-dns-testing": _SHELL,
}
"""What the images run that storage tests name; others stay unknown to the nodes."""


def listed(names: Iterable[str], layers: Mapping[str, bytes]) -> list[image.Image]:
    """The images of those that the suite lists which its storage tests use.

    Args:
        names: as ``e2e-storage.test --list-images`` prints them.
        layers: "base" of all, and those that some have besides, by the names in ``RUNS``.
    """
    found = []
    for name in sorted({each.strip() for each in names}):
        match = _NAME.match(name)
        if match and (runs := RUNS.get(match["name"])):
            more = [layers[match["name"]]] if match["name"] in layers else []
            found.append(image.Image(name, runs, [layers["base"], *more]))
    return found


def write(tar: Path, names: Iterable[str], agnhost: Path) -> Path:
    """Write the tar of all these images.

    Raises:
        SandboxError: this machine lacks a program that goes into one of them.
    """
    layers = {
        "base": image.base_from_here(),
        "agnhost": image.programs({"/agnhost": agnhost.read_bytes()}),
        "glibc-dns-testing": image.programs(_with_libraries("dd", "dash")),
    }
    return image.write(tar, listed(names, layers))


def _with_libraries(*programs: str) -> dict[str, bytes]:
    """Programs in /bin, dash also as sh (busybox' sh runs its own dd), and what they link to."""
    found = {name: shutil.which(name) for name in programs}
    absent = [name for name, path in found.items() if path is None]
    if absent:
        raise SandboxError(f"the suite's pods need {' and '.join(absent)} from this machine")
    paths = [Path(path) for path in found.values() if path is not None]
    said = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in said.split() if word.startswith("/") and not word.endswith(":")}
    contents = {library: Path(library).read_bytes() for library in libraries}
    contents |= {f"/bin/{path.name}": path.read_bytes() for path in paths}
    return contents | {"/bin/sh": contents["/bin/dash"]}
