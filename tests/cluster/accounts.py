"""The accounts of our programs, as the manifests make them, in the hands of a thief."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from provisioner.sandbox.api import Api
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.kubectl import kubectl
from tests.cluster.audit import THIEF
from tests.cluster.background import Background

NAMESPACE = "ebs-provisioner"
WEBHOOK, CONTROLLER, NODE = "ebs-webhook", "ebs-provisioner-controller", "ebs-provisioner-node"
FOLDERS = {
    WEBHOOK: MANIFESTS / "webhook",
    CONTROLLER: MANIFESTS,
    NODE: MANIFESTS / "node",
}


async def token_of(background: Background, account: str) -> str:
    """A token of an account of ours, with its rights and the policies that limit it."""
    plane = background.sandbox.plane
    folder, namespace = FOLDERS[account], NODE if account == NODE else NAMESPACE
    found = [folder / name for name in ("service-account.yaml", "rbac.yaml", "policy.yaml")]
    files = [argument for path in found if path.exists() for argument in ("-f", str(path))]
    await kubectl(plane, "apply", "-f", str(MANIFESTS / "namespace.yaml"))
    await kubectl(plane, "apply", "-f", str(MANIFESTS / "node/namespace.yaml"))
    await kubectl(plane, "apply", *files)
    return await background.call(plane.service_account_token(namespace, account))


@contextlib.asynccontextmanager
async def as_account(background: Background, account: str) -> AsyncIterator[Api]:
    """A client with that token."""
    plane = background.sandbox.plane
    token = await token_of(background, account)
    async with Api(plane.server, plane.credentials.authority, token, THIEF) as client:
        yield client
