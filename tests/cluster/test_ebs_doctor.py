"""``kubectl ebs doctor``, as somebody runs it beside a cluster and its EC2."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from provisioner.sandbox.up import Sandbox
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def doctor(
    sandbox: Sandbox, *arguments: str, **environment: str
) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "ebs", "doctor", *arguments),
        *("--kubeconfig", str(sandbox.plane.kubeconfig)),
        env={**os.environ, **sandbox.aws_environment, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def checks(
    sandbox: Sandbox, *arguments: str, **environment: str
) -> dict[str, dict[str, Any]]:
    _, out, err = await doctor(sandbox, "-o", "json", *arguments, **environment)
    assert err == ""
    return {each["id"]: each for each in json.loads(out)["checks"]}


async def test_nothing_is_wrong_with_a_cluster_that_works(cluster: Cluster):
    code, out, err = await doctor(cluster.sandbox, "-o", "json")

    assert (code, err) == (0, "")
    report = json.loads(out)
    trouble = {each["id"] for each in report["checks"] if each["verdict"] in {"failed", "warning"}}
    assert trouble == set()
    assert report["awsCalls"]["GetCallerIdentity"] == 1
