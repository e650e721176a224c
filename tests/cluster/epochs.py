"""Leases that prove a long epoch of ours: a cluster that nobody else has worked in for a day."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

from provisioner.model import leadership
from provisioner.model.names import LED_SINCE
from provisioner.sandbox.api import Api, ApiError
from tests.cluster import hands
from tests.cluster.audit import THIEF
from tests.cluster.hands import DRIVER, PVS
from tests.cluster.replicas import eventually
from tests.cluster.stock import LEASES

_LASTED = timedelta(days=1)
_CONTROLLER = ("ebs-provisioner", "ebs-provisioner-controller")
_POLICY = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"
    "ebs-provisioner-controller-on-volumes"
)
# All that were ever added: tests run beside each other, and each writes the whole list.
_drivers = {DRIVER}
_writing = asyncio.Lock()


async def of_ours(api: Api, driver: str = DRIVER) -> None:
    """Put leases in place of those there, as a leader of ours releases them after a day."""
    now = datetime.now(UTC)
    renewed = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    proof = f"{now - _LASTED:%Y-%m-%dT%H:%M:%SZ}  {renewed}"
    for name in leadership.lease_names(driver):
        await hands.discard(api, f"{LEASES}/{name}")
        lease = {
            "metadata": {"name": name, "annotations": {LED_SINCE: proof}},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": renewed},
        }
        await api.create(LEASES, lease)


async def let_work_as(api: Api, name: str, *drivers: str) -> None:
    """Give the controller of the manifests what it needs as drivers of other names."""
    await _let_read_leases(api, name, *drivers)
    await let_write_volumes(api, *drivers)


async def let_write_volumes(api: Api, *drivers: str) -> None:
    """Add drivers to the policy about the controller's volumes, as its comment says."""
    async with _writing:
        _drivers.update(drivers)
        found = await api.get(_POLICY)
        for each in found["spec"]["variables"]:
            if each["name"] == "drivers":
                each["expression"] = json.dumps(sorted(_drivers))
        await api.patch(_POLICY, {"spec": {"variables": found["spec"]["variables"]}})
    namespace, account = _CONTROLLER
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token = (await api.create(path, {"spec": {"expirationSeconds": 600}}))["status"]["token"]
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": drivers[-1], "volumeHandle": "vol-0"},
    }
    body = {"metadata": {"name": "probe"}, "spec": spec}
    async with Api(api.server, api.authority, token, THIEF) as client:

        async def allowed() -> bool:
            try:
                await client.request("POST", PVS, body, dryRun="All")
            except ApiError:
                return False
            return True

        await eventually(f"the controller may write volumes of {drivers[-1]}", allowed)


async def _let_read_leases(api: Api, name: str, *drivers: str) -> None:
    about = {"metadata": {"name": name}}
    names = [lease for driver in drivers for lease in leadership.lease_names(driver)]
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": names,
        "verbs": ["get", "patch"],
    }
    namespace, account = _CONTROLLER
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": account}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    await api.create(f"{_RBAC}/roles", about | {"rules": [rule]})
    await api.create(f"{_RBAC}/rolebindings", about | {"roleRef": role, "subjects": [subject]})


async def forget_rights(api: Api, name: str) -> None:
    """Take what ``let_work_as`` has made away."""
    for kind in ("roles", "rolebindings"):
        await hands.discard(api, f"{_RBAC}/{kind}/{name}")


_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system"
