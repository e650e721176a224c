"""The chart as Helm renders it, and the kustomizations as kubectl does. Nothing is asked of a cluster."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.sandbox.binaries import ensure_binaries, find_binaries
from provisioner.sandbox.programs import CHART
from tests.documents import yaml_documents

Json = dict[str, Any]
MANIFESTS = Path(__file__).parents[2] / "manifests"
CHART_FOLDER = MANIFESTS / "chart"
NAMESPACE = "ebs-provisioner"
BIG = {"nodeSelector": {"size": "big"}}

built = pytest.mark.skipif(
    find_binaries(programs=CHART) is None,
    reason="helm is not built: ebs-provisioner sandbox binaries --tests",
)
"""Of tests that need Helm: building it takes longer than a test may."""


@cache
def _home() -> str:
    """An empty folder: Helm keeps what an API server serves in its home."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def helm(*arguments: str, text: str = "") -> tuple[int, str, str]:
    """Run Helm with ``text`` on its standard input; its exit code, output and errors."""
    program = ensure_binaries(programs=CHART) / "helm"
    # Nothing of the user's: no kubeconfig, no repositories, no plugins.
    environment = {"PATH": os.environ["PATH"], "HOME": _home(), "KUBECONFIG": "/dev/null"}
    run = subprocess.run(
        [str(program), *arguments],
        input=text,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout, run.stderr


def template(
    values: Json | None = None,
    *,
    kubernetes: str = "1.33.0",
    kinds: tuple[str, ...] = (),
    namespace: str = NAMESPACE,
    chart: Path = CHART_FOLDER,
) -> tuple[int, str, str]:
    """Render the chart with these values, for a cluster that serves these groups besides its own."""
    return helm(
        *("template", "ebs-provisioner", str(chart), "--namespace", namespace),
        *("--kube-version", kubernetes, "--values", "-"),
        *(f"--api-versions={kind}" for kind in kinds),
        text=yaml.safe_dump(values or {}),
    )


def rendered(values: Json | None = None, **more: Any) -> list[Json]:
    """All objects of the chart with these values."""
    code, output, errors = template(values, **more)
    assert code == 0, errors
    return [each for each in yaml_documents(output) if each]


def refusal(values: Json, **more: Any) -> str:
    """Why Helm does not render the chart with these values."""
    code, output, errors = template(values, **more)
    assert code != 0, "it was rendered"
    assert output == ""
    return errors


@cache
def kubectl() -> Path:
    """The program, wherever it is."""
    return ensure_binaries(programs=("kubectl",)) / "kubectl"


def kustomized(folder: Path) -> list[Json]:
    """All objects of a kustomization."""
    command = [str(kubectl()), "kustomize", str(folder)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [each for each in yaml_documents(output) if each]


def one(objects: list[Json], kind: str, name: str) -> Json:
    """The object of this kind and name."""
    [found] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def merged(*layers: Json) -> Json:
    """Values over values, as Helm merges them."""
    result: Json = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result


def required(key: str, operator: str, *values: str) -> Json:
    """An affinity to nodes by one label."""
    return of_terms([{"key": key, "operator": operator, "values": [*values]}])


def of_terms(*terms: list[Json]) -> Json:
    """An affinity to nodes that meet all expressions of one of these terms."""
    asked = {"nodeSelectorTerms": [{"matchExpressions": each} for each in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": asked}}
