"""The workflow that publishes: what of it can be run here."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".ci/publish.yaml").read_text())["jobs"]
STEPS: list[dict[str, Any]] = JOBS["image"]["steps"]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def named(tag: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the step that names the image; it leaves the name in ``folder``."""
    [script] = [each["run"] for each in STEPS if each.get("name", "").startswith("Name the image")]
    environment = {
        "PATH": os.environ["PATH"],
        "GITHUB_ENV": str(folder / "environment"),
        "GITHUB_REF_NAME": tag,
        "GITHUB_REPOSITORY_OWNER": "Acme-Corp",
        "REGISTRY": "registry.example",
    }
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_owner_with_capital_letters_has_a_name_that_registries_take(tmp_path: Path):
    done = named(f"v{VERSION}", tmp_path)

    assert done.returncode == 0, done.stderr
    name = (tmp_path / "environment").read_text()
    assert name == "IMAGE=registry.example/acme-corp/ebs-provisioner\n"


def test_a_tag_of_another_version_is_one_sentence(tmp_path: Path):
    done = named("v99.0.0", tmp_path)

    assert done.returncode == 1
    assert done.stderr == "the tag is v99.0.0, and pyproject.toml has another version\n"
    assert not (tmp_path / "environment").exists()


@pytest.mark.parametrize(
    "script", [each["run"] for job in JOBS.values() for each in job["steps"] if "run" in each]
)
def test_each_step_is_bash(script: str):
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
