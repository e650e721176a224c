"""Leases that prove a long epoch of ours: a cluster that nobody else has worked in for a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from provisioner.model import leadership
from provisioner.model.names import LED_SINCE
from provisioner.sandbox.api import Api
from tests.cluster import hands
from tests.cluster.hands import DRIVER
from tests.cluster.stock import LEASES

_LASTED = timedelta(days=1)
_CONTROLLER = ("ebs-provisioner", "ebs-provisioner-controller")


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


async def let_read_leases(api: Api, name: str, *drivers: str) -> None:
    """Give the controller of the manifests the rights to the leases of drivers of other names."""
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
    """Take what ``let_read_leases`` has made away."""
    for kind in ("roles", "rolebindings"):
        await hands.discard(api, f"{_RBAC}/{kind}/{name}")


_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system"
