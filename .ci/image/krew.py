"""``kubectl ebs`` for krew: an archive for each platform, and the manifest: ``make krew URL=…``.

krew unpacks an archive and links one file of it (krew developer guide, "Writing Krew plugin
manifests", read 2026-11-24). That file is a script for the user's own Python; its packages lie
beside it, the compiled parts of each for all versions of Python that are named here.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from image import fetch, recipe, source
from image.errors import ImageError
from image.locking import WHEELS
from image.tree import MTIME
from provisioner.sandbox.binaries import cache_folder

_ROOT: Final = Path(__file__).resolve().parents[2]
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
_GLIBCS: Final = (*(f"manylinux_2_{minor}" for minor in range(28, 16, -1)), "manylinux2014")
PLATFORMS: Final = {
    ("linux", "amd64"): tuple(f"{each}_x86_64" for each in _GLIBCS),
    ("linux", "arm64"): tuple(f"{each}_aarch64" for each in _GLIBCS),
    ("darwin", "arm64"): ("macosx_13_0_arm64",),
}
"""What krew calls an operating system and an architecture, and what wheels call both.

cryptography 50 has no wheels for Macs with Intel processors.
"""
PROGRAM: Final = "kubectl-ebs"
_LEVEL: Final = 6  # 9 takes four times the CPU, for an archive that is hardly smaller
_OF_THE_NODE: Final = ("grpcio", "protobuf")
# The image's programs call EC2 and STS only.
_ALSO_CALLED: Final = re.compile(r"botocore/data/(kms|pricing|service-quotas)(/.*)?")
# What differs between the wheels of one version, and is not read when the plugin runs.
_OF_WHEELS: Final = re.compile(r"[^/]+\.data/.*|[^/]+\.dist-info/(RECORD|WHEEL|sboms/.*)")
_SCRIPT: Final = f"""\
#!/usr/bin/env python3
import os
import sys

if "%d.%d" % sys.version_info[:2] not in {PYTHONS}:
    sys.exit(
        "kubectl ebs needs Python {PYTHONS[0]} to {PYTHONS[-1]} as python3, and this is %d.%d: put "
        "such a python3 first on the PATH" % sys.version_info[:2]
    )
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))

from provisioner.inspect.commands import main

main()
"""

Files = dict[str, bytes]
"""What is at a path."""


def wheels(platform: tuple[str, str], python: str, cache: Path) -> list[Path]:
    """The wheels of the plugin for a platform and a Python, each with its locked hash.

    Raises:
        ImageError: pip cannot have one of them.
    """
    blocks = re.split(r"\n(?=\S)", WHEELS.read_text())
    wanted = "\n".join(each for each in blocks if each.partition("==")[0] not in _OF_THE_NODE)
    digest = hashlib.sha256(f"{wanted}{PLATFORMS[platform]}".encode()).hexdigest()[:16]
    folder = cache / "krew" / f"{'-'.join(platform)}-{python}-{digest}"
    requirements, done = folder / "wheels.txt", folder / "done"
    if not done.exists():
        fetch.put(requirements, wanted.encode())
        fetch.pip(
            *("download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--require-hashes", "--only-binary=:all:", f"--requirement={requirements}"),
            *("--implementation=cp", f"--python-version={python}", f"--dest={folder}"),
            *(f"--platform={each}" for each in PLATFORMS[platform]),
        )
        fetch.put(done, b"")
    return sorted(folder.glob("*.whl"))


def packages(found: Mapping[str, list[Path]]) -> Files:
    """What the wheels for several Pythons bring, put into one folder.

    Args:
        found: the wheels, by the version of Python.

    Raises:
        ImageError: two of them bring different files of one name.
    """
    files: Files = {}
    for wheel in sorted({each for some in found.values() for each in some}):
        with zipfile.ZipFile(wheel) as archive:
            for name in filter(_is_taken, archive.namelist()):
                data = archive.read(name)
                if files.setdefault(name, data) != data:
                    raise ImageError(f"{wheel.name} has another {name} than for another Python")
    return files


def _is_taken(name: str) -> bool:
    if name.endswith("/") or _OF_WHEELS.fullmatch(name):
        return False
    return recipe.is_taken_of_wheels(name) or _ALSO_CALLED.fullmatch(name) is not None


def archive(libraries: Files, root: Path) -> bytes:
    """The archive for one platform, the same whenever it is made of the same files.

    Raises:
        ImageError: our own wheel cannot be built.
    """
    site = f"{recipe.SITE}/"
    own = {
        path.removeprefix(site): each.data or b"" for path, each in source.ours(root, ()).items()
    }
    files = {f"lib/{path}": data for path, data in (libraries | own).items()}
    files |= {PROGRAM: _SCRIPT.encode(), "LICENSE": (root / "LICENSE").read_bytes()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.size, member.mtime = len(data), MTIME
            member.mode = 0o755 if path == PROGRAM else 0o644
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), _LEVEL, mtime=0)


def manifest(version: str, url: str, archives: Mapping[tuple[str, str], tuple[str, bytes]]) -> str:
    """The manifest, as YAML.

    Args:
        version: of the plugin, without "v".
        url: of the folder that the archives will be in.
        archives: by platform, the name of a file and what is in it.
    """
    platforms: list[dict[str, Any]] = [
        {
            "selector": {"matchLabels": {"os": system, "arch": architecture}},
            "uri": f"{url.rstrip('/')}/{name}",
            "sha256": hashlib.sha256(data).hexdigest(),
            "bin": PROGRAM,
        }
        for (system, architecture), (name, data) in archives.items()
    ]
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "ebs"},
        "spec": {
            "version": f"v{version}",
            "homepage": url.partition("/releases/")[0],
            "shortDescription": "Explain and inspect volumes of AWS EBS",
            "description": "Says why a pod, a claim or a volume of AWS EBS does not work and what "
            "would help, what in the cluster and in AWS will fail, how full volumes are, and what "
            "they cost. Only `orphans --apply` and `move` change anything.\n",
            "caveats": f"It needs Python {PYTHONS[0]} to {PYTHONS[-1]} as python3 on the PATH, and "
            "finds AWS credentials as the AWS CLI does.\n",
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(document, sort_keys=False, width=100)


def main(argv: list[str] | None = None) -> int:
    """Make the archives and the manifest; return the exit code."""
    parser = argparse.ArgumentParser(prog="krew", description=__doc__)
    parser.add_argument("--url", required=True, help="of the folder that the archives will be in")
    parser.add_argument("--into", type=Path, default=_ROOT / "dist", metavar="FOLDER")
    options = parser.parse_args(argv)
    cache = cache_folder(os.environ) / "image"
    archives: dict[tuple[str, str], tuple[str, bytes]] = {}
    try:
        version = source.describe(_ROOT).version
        for platform in PLATFORMS:
            found = {python: wheels(platform, python, cache) for python in PYTHONS}
            data = archive(packages(found), _ROOT)
            name = f"{PROGRAM}-{version}-{'-'.join(platform)}.tar.gz"
            fetch.put(options.into / name, data)
            archives[platform] = name, data
            print(f"{options.into / name} ({len(data) / 2**20:.1f} MiB)", flush=True)
        text = manifest(version, options.url, archives)
        fetch.put(options.into / "ebs.yaml", text.encode())
    except (ImageError, OSError) as error:
        print(f"krew: {error}", file=sys.stderr)
        return 1
    print(options.into / "ebs.yaml")
    return 0


if __name__ == "__main__":
    sys.exit(main())
