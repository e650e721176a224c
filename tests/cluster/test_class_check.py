"""``ebs-provisioner class check NAME``, as somebody runs it beside a real cluster."""

from __future__ import annotations

import asyncio
import sys

from provisioner.sandbox.api import Api
from provisioner.sandbox.up import Sandbox
from tests.cluster.hands import CLASSES, DRIVER

A = "us-east-1a"


async def checked(sandbox: Sandbox, name: str) -> tuple[int | None, str, str]:
    """Exit code, what is printed, what is complained of."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "class", "check", name),
        *("--kubeconfig", str(sandbox.plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_class_is_held_against_the_zones_of_the_nodes(
    sandbox: Sandbox, api: Api, namespace: str
):
    name = f"{namespace}-class"
    within = {"key": "topology.kubernetes.io/zone", "values": [A, "us-east-1q"]}
    made = {
        "metadata": {"name": name},
        "provisioner": DRIVER,
        "allowedTopologies": [{"matchLabelExpressions": [within]}],
    }
    await api.create(CLASSES, made)
    try:
        code, out, err = await checked(sandbox, name)
    finally:
        await api.delete(f"{CLASSES}/{name}")

    assert (code, err) == (0, "")
    assert out.startswith(f"class {name} ({DRIVER}): works, with doubts\n")
    assert "allowedTopologies names us-east-1q, where no node is" in out
    assert f"it binds immediately, so volumes may be created in {A} or us-east-1q" in out


async def test_a_class_that_is_not_there_is_one_line(sandbox: Sandbox):
    code, out, err = await checked(sandbox, "no-such-class")

    assert (code, out) == (1, "")
    assert err.startswith("ebs-provisioner: cannot get storageclasses no-such-class")
    assert err.count("\n") == 1
