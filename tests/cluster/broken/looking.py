"""The two commands, each run in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path

from provisioner.sandbox.up import Sandbox
from tests import forked
from tests.cluster.broken.record import Broken
from tests.cluster.cluster import Json
from tests.cluster.place import Place

Said = tuple[Json, dict[str, Json]]
"""What ``explain`` says, and the checks of ``doctor``."""
_AT_ONCE = asyncio.Semaphore(4)
"""More would only be late together."""


async def ebs(sandbox: Sandbox, *arguments: str) -> Json:
    """What ``kubectl ebs`` prints with ``-o json``.

    Raises:
        AssertionError: that is no JSON; what was printed is in the text.
    """
    words = ("ebs", *arguments, "-o", "json", "--kubeconfig", str(sandbox.plane.kubeconfig))
    environment = {**os.environ, **sandbox.aws_environment}
    async with _AT_ONCE:
        out, err = await asyncio.to_thread(_run, words, environment)
    try:
        found: Json = json.loads(out)
    except ValueError:
        raise AssertionError(f"{arguments}: {out}{err}") from None
    return found


def _run(words: tuple[str, ...], environment: dict[str, str]) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = forked.started(words, environment, folder)
        process.join()
        process.close()
        return (folder / forked.OUT).read_text(), (folder / forked.ERR).read_text()


async def explained(sandbox: Sandbox, target: str, namespace: str) -> Json:
    """What ``explain`` says of an object ("pvc data"); nothing if there is none."""
    if not target:
        return {"chains": []}
    kind, name = target.split(" ")
    return await ebs(sandbox, "explain", kind, name, "-n", namespace)


async def checked(sandbox: Sandbox, *arguments: str) -> dict[str, Json]:
    """The checks of ``doctor`` by their ids."""
    found = await ebs(sandbox, "doctor", *arguments)
    return {each["id"]: each for each in found["checks"]}


async def said(place: Place, way: Broken) -> Said:
    """What both commands say of one way, while it is broken."""
    sandbox = place.cluster.sandbox
    async with way.make(place) as target:
        return await asyncio.gather(
            explained(sandbox, target, place.name), checked(sandbox, *way.arguments)
        )
