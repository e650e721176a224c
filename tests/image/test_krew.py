"""``kubectl ebs`` as krew installs it: the archive, the script that starts it, the manifest."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from image import krew
from image.errors import ImageError
from provisioner.inspect.commands import _COMMANDS
from tests.image import checkout

CALLED = ("ec2", "kms", "pricing", "service-quotas", "sts")
"""The AWS services that the commands call."""
IMPORTS = """\
import json, sys
sys.path.insert(0, sys.argv[1])
import boto3
from importlib import import_module
for module in json.loads(sys.argv[2]): import_module(module)
for service in json.loads(sys.argv[3]): boto3.client(service, region_name="us-east-1")
print(all(each.startswith(sys.argv[1]) for each in (boto3.__file__, import_module("provisioner").__file__)))
"""


def wheel(folder: Path, name: str, files: Mapping[str, str]) -> Path:
    path = folder / f"{name}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in files.items():
            archive.writestr(each, text)
    return path


def test_compiled_parts_for_all_pythons_lie_beside_each_other(tmp_path: Path):
    usual = {"fast/__init__.py": "1", "fast.dist-info/METADATA": "fast"}
    found = {
        python: [
            wheel(
                tmp_path,
                f"fast-{python}",
                usual | {f"fast/_c.{python}.so": python, "fast.dist-info/RECORD": python},
            )
        ]
        for python in ("3.11", "3.12")
    }

    assert {*krew.packages(found)} == {*usual, "fast/_c.3.11.so", "fast/_c.3.12.so"}


def test_wheels_that_do_not_go_together_make_no_archive(tmp_path: Path):
    found = {each: [wheel(tmp_path, each, {"one.py": each})] for each in ("3.11", "3.12")}

    with pytest.raises(ImageError, match=r"3\.12\.whl has another one\.py"):
        krew.packages(found)


def test_a_python_that_is_too_old_is_named_in_one_sentence():
    old = f"import sys; sys.version_info = (3, 9, 1); exec({krew._SCRIPT!r})"
    done = subprocess.run(
        [sys.executable, "-c", old], capture_output=True, text=True, check=False, env={}
    )

    assert done.returncode == 1
    assert done.stderr.startswith(
        "kubectl ebs needs Python 3.11 to 3.14 as python3, and this is 3.9"
    )
    assert done.stderr.count("\n") == 1


def test_the_manifest_names_each_archive_with_its_digest():
    archives = {each: (f"{'-'.join(each)}.tar.gz", repr(each).encode()) for each in krew.PLATFORMS}

    found = yaml.safe_load(krew.manifest("0.2.0", "https://git.example/a/b/releases/x/", archives))

    assert (found["kind"], found["metadata"]["name"]) == ("Plugin", "ebs")
    assert found["spec"]["version"] == "v0.2.0"
    assert found["spec"]["homepage"] == "https://git.example/a/b"
    assert len(found["spec"]["shortDescription"]) <= 50  # krew's naming guide
    for each in found["spec"]["platforms"]:
        labels = each["selector"]["matchLabels"]
        name, data = archives[labels["os"], labels["arch"]]
        assert each["uri"] == f"https://git.example/a/b/releases/x/{name}"
        assert each["sha256"] == hashlib.sha256(data).hexdigest()
        assert each["bin"] == krew.PROGRAM


def test_an_unpacked_archive_runs_by_a_link_to_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(krew, "_LEVEL", 1)  # half of the CPU would go into its compression
    python = "{}.{}".format(*sys.version_info)
    if python not in krew.PYTHONS:
        pytest.skip(f"the archive has nothing for Python {python}")
    platform = ("linux", checkout.architecture())
    found = {python: krew.wheels(platform, python, checkout.cache())}
    made = krew.archive(krew.packages(found), checkout.ROOT)
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        archive.extractall(tmp_path / "store", filter="data")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / krew.PROGRAM
    program.symlink_to(tmp_path / "store" / krew.PROGRAM)

    told = subprocess.run(
        [sys.executable, "-I", program, "explain", "reason", "QuotaExceeded"],
        capture_output=True,
        text=True,
        check=True,
        env={},
    )
    library = str(tmp_path / "store" / "lib")
    modules = json.dumps(sorted({*_COMMANDS.values()}))
    imported = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORTS, library, modules, json.dumps(CALLED)],
        capture_output=True,
        text=True,
        check=True,
        env={},
    )

    assert told.stdout.startswith("QuotaExceeded\n")
    assert os.access(program, os.X_OK)
    assert imported.stdout == "True\n"
