"""What is set up wrongly: no object of a user shows it, and ``doctor`` looks at it."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from provisioner.sandbox.installation import MANIFESTS, WEBHOOK, WEBHOOK_NAMESPACE
from tests.cluster import hands
from tests.cluster.broken.deployed import deployed
from tests.cluster.broken.record import Matrix, Section
from tests.cluster.broken.refused import ALWAYS, NOT_AUTHORIZED
from tests.cluster.place import Place
from tests.cluster.webhook_hands import SECRET
from tests.sandbox import lab
from tests.webhook.pairs import Issued, issue, self_signed
from webhook.certificates.issuing import Names

matrix = Matrix(Section.CONTROLLER)
broken = matrix.broken

_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
_KINDS = ("mutating", "validating")
NOWHERE = {"matchLabels": {"ebs-provisioner.io/nowhere": "yes"}}


_ROLE = "matrix-controller"


@broken(
    "EC2 is asked in another region than the cluster's",
    check="region",
    arguments=("--region", "eu-west-1"),
)
@asynccontextmanager
async def wrong_region(place: Place) -> AsyncIterator[str]:
    del place
    yield ""


@broken(
    "The controller's role lacks a right that no claim has needed yet",
    check="iam-CopyVolumes",
    arguments=("--role", f"arn:aws:iam::123456789012:role/{_ROLE}"),
)
@asynccontextmanager
async def right_missing(place: Place) -> AsyncIterator[str]:
    """EC2 refuses each dry run of the action; one on a volume, so there is one."""
    cluster = place.cluster
    await place.a_volume()
    iam = lab.client(cluster.sandbox.ec2_endpoint, service="iam")
    await asyncio.to_thread(iam.create_role, RoleName=_ROLE, AssumeRolePolicyDocument="{}")
    denied = NOT_AUTHORIZED | {"match": {"DryRun": "true"}}
    await cluster.fault("CopyVolumes", n=ALWAYS, **denied)
    try:
        yield ""
    finally:
        await cluster.control(faults=None)
        await asyncio.to_thread(iam.delete_role, RoleName=_ROLE)


@broken("The controllers of both drivers are switched on", check="one-controller")
@asynccontextmanager
async def two_controllers(place: Place) -> AsyncIterator[str]:
    await deployed(place, "ebs-provisioner", component="controller", replicas=1)
    await deployed(place, "aws-ebs-csi-driver", component="csi-driver", replicas=1)
    yield ""


# -- the webhook, whose configurations are registered for objects that nobody has


@asynccontextmanager
async def _registered(place: Place, authority: bytes) -> AsyncIterator[None]:
    """The configurations of the manifests with a caBundle, asked of no object here."""
    file = MANIFESTS / "webhook" / "webhooks.yaml"
    both: list[dict[str, Any]] = list(yaml.safe_load_all(file.read_text()))
    for configuration, kind in zip(both, _KINDS, strict=True):
        for webhook in configuration["webhooks"]:
            webhook["clientConfig"]["caBundle"] = b64encode(authority).decode()
            webhook["objectSelector"] = NOWHERE
        await place.api.create(_WEBHOOKS.format(kind=kind), configuration)
    try:
        yield
    finally:
        for kind in _KINDS:
            await hands.discard(place.api, f"{_WEBHOOKS.format(kind=kind)}/{WEBHOOK}")


_NAMES = Names(dns=(f"{WEBHOOK}.{WEBHOOK_NAMESPACE}.svc",), ips=())
_LONG_AGO = timedelta(days=5 * 365)


@asynccontextmanager
async def _served(place: Place, issued: Issued) -> AsyncIterator[None]:
    """The Secret of the webhook holds this certificate."""
    old = await place.cluster.get(SECRET)
    body = {
        "metadata": {"name": "ebs-webhook-tls"},
        "data": {
            "tls.crt": b64encode(issued.certificate).decode(),
            "tls.key": b64encode(issued.key).decode(),
        },
    }
    if old is None:
        await place.api.create(SECRET.rpartition("/")[0], body)
    else:
        await place.api.patch(SECRET, {"data": body["data"]})
    try:
        yield
    finally:
        if old is None:
            await place.api.delete(SECRET)
        else:
            await place.api.patch(SECRET, {"data": {**dict.fromkeys(body["data"]), **old["data"]}})


@broken(
    "The webhook's Service has no endpoints", check="webhook-reachable", section=Section.WEBHOOK
)
@asynccontextmanager
async def no_endpoints(place: Place) -> AsyncIterator[str]:
    async with _registered(place, issue(_NAMES, datetime.now(UTC)).authority):
        yield ""


@broken(
    "The webhook's caBundle is of another authority",
    check="webhook-certificate",
    section=Section.WEBHOOK,
)
@asynccontextmanager
async def wrong_authority(place: Place) -> AsyncIterator[str]:
    one, other = (issue(_NAMES, datetime.now(UTC)) for _ in range(2))
    async with _served(place, one), _registered(place, other.authority):
        yield ""


@broken("The webhook's authority has expired", check="webhook-ca", section=Section.WEBHOOK)
@asynccontextmanager
async def expired_authority(place: Place) -> AsyncIterator[str]:
    """What it has signed is served still."""
    issued = self_signed(_NAMES, datetime.now(UTC) - _LONG_AGO, authority=True)
    async with _served(place, issued), _registered(place, issued.authority):
        yield ""


@broken("The webhook's certificate has expired", check="webhook-expiry", section=Section.WEBHOOK)
@asynccontextmanager
async def expired_certificate(place: Place) -> AsyncIterator[str]:
    issued = issue(_NAMES, datetime.now(UTC) - _LONG_AGO)
    async with _served(place, issued), _registered(place, issued.authority):
        yield ""
