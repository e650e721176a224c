"""Pods of real nodes that serve a page with their name, and what asks for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.file_pods import pod
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.up import Sandbox
from tests.cluster.real_nodes import run

SERVE = 'mkdir /www && echo "$NAME" > /www/index.html && exec httpd -f -p 8080 -h /www'


@asynccontextmanager
async def pods(box: Sandbox, *documents: dict[str, Any]) -> AsyncIterator[list[str]]:
    """Pods that run; their addresses."""
    names = [each["metadata"]["name"] for each in documents]
    try:
        for document in documents:
            await run(box, document)
        found = [await status(box, name) for name in names]
        yield [each["podIP"] for each in found]
    finally:
        await kubectl(box.plane, "delete", "pod", *names, "--ignore-not-found", "--timeout=50s")


async def status(box: Sandbox, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await kubectl(box.plane, "get", "pod", name, "-o", "json"))
    return dict(found["status"])


def server(name: str, node: str, **spec: Any) -> dict[str, Any]:
    """A pod whose page says its name."""
    spec = {"hostNetwork": False} | spec
    return pod(name, SERVE, {}, image=POD_IMAGE, node=node, environment={"NAME": name}, **spec)


def page(address: str) -> Sequence[str]:
    return ("timeout", "5", "wget", "-q", "-O-", f"http://{address}:8080/")
