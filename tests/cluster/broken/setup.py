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
from tests.cluster.broken import quiet_nodes, refused
from tests.cluster.broken.record import Matrix
from tests.cluster.place import Place
from tests.cluster.webhook_hands import SECRET
from tests.webhook.pairs import Issued, issue
from webhook.certificates.issuing import Names

matrix = Matrix()
broken = matrix.broken

_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
_KINDS = ("mutating", "validating")
DEPLOYMENTS = "/apis/apps/v1/namespaces/{namespace}/deployments"
ROLE = "arn:aws:iam::123456789012:role/ebs-provisioner"
NOWHERE = {"matchLabels": {"ebs-provisioner.io/nowhere": "yes"}}


def _may_not(action: str, check: str = "") -> None:
    """The role lacks a right, which a dry run shows."""

    @broken(f"The role lacks ec2:{action}", check=check or f"iam-{action}")
    @asynccontextmanager
    async def lacks(place: Place) -> AsyncIterator[str]:
        await place.a_volume()
        denied: dict[str, Any] = {"n": refused.ALWAYS, **refused.NOT_AUTHORIZED}
        await place.cluster.fault(action, match={"DryRun": "true"}, **denied)
        try:
            yield f"--role {ROLE}"
        finally:
            await place.cluster.control(faults=None)


for _action in ("CreateVolume", "AttachVolume", "ModifyVolume", "CreateSnapshot"):
    _may_not(_action)


@broken("EC2 is asked in another region than the cluster's", check="region")
@asynccontextmanager
async def wrong_region(place: Place) -> AsyncIterator[str]:
    del place
    yield "--region eu-west-1"


@broken("Pods cannot reach the metadata service: hop limit 1", check="hop-limit")
@asynccontextmanager
async def hop_limit(place: Place) -> AsyncIterator[str]:
    async with quiet_nodes.a_node(place) as instance:
        change = {"InstanceId": instance.instance_id, "HttpPutResponseHopLimit": 1}
        await asyncio.to_thread(place.cluster.ec2.modify_instance_metadata_options, **change)
        yield ""


@broken("Two controllers are switched on, the stock driver's and ours", check="one-controller")
@asynccontextmanager
async def two_controllers(place: Place) -> AsyncIterator[str]:
    """Both Deployments as they are installed, of pods that no node takes."""
    documents = yaml.safe_load_all((MANIFESTS / "deployment.yaml").read_text())
    ours = next(each for each in documents if each["kind"] == "Deployment")
    ours["metadata"].setdefault("namespace", "ebs-provisioner")
    stock = _deployment("ebs-csi-controller", "kube-system")
    for each in (ours, stock):
        each["spec"]["template"]["spec"]["nodeSelector"] = NOWHERE["matchLabels"]
        path = DEPLOYMENTS.format(namespace=each["metadata"]["namespace"])
        await place.api.create(path, each)
    try:
        yield ""
    finally:
        for each in (ours, stock):
            path = DEPLOYMENTS.format(namespace=each["metadata"]["namespace"])
            await hands.discard(place.api, f"{path}/{each['metadata']['name']}")


def _deployment(name: str, namespace: str) -> dict[str, Any]:
    labels = {"app": name, "app.kubernetes.io/name": "aws-ebs-csi-driver"}
    containers = [
        {"name": each, "image": each} for each in ("ebs-plugin", "csi-provisioner", "csi-attacher")
    ]
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}


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
_LONG_AGO = timedelta(days=20 * 365)


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


@broken("The webhook's Service has no endpoints", check="webhook-reachable")
@asynccontextmanager
async def no_endpoints(place: Place) -> AsyncIterator[str]:
    async with _registered(place, issue(_NAMES, datetime.now(UTC)).authority):
        yield ""


@broken("The webhook's caBundle is of an authority that has expired", check="webhook-ca")
@asynccontextmanager
async def old_authority(place: Place) -> AsyncIterator[str]:
    async with _registered(place, issue(_NAMES, datetime.now(UTC) - _LONG_AGO).authority):
        yield ""


@broken("The webhook's caBundle is of another authority", check="webhook-certificate")
@asynccontextmanager
async def wrong_authority(place: Place) -> AsyncIterator[str]:
    one, other = (issue(_NAMES, datetime.now(UTC)) for _ in range(2))
    async with _served(place, one), _registered(place, other.authority):
        yield ""


@broken("The webhook's certificate has expired", check="webhook-expiry")
@asynccontextmanager
async def expired_certificate(place: Place) -> AsyncIterator[str]:
    issued = issue(_NAMES, datetime.now(UTC) - _LONG_AGO)
    async with _served(place, issued), _registered(place, issued.authority):
        yield ""
