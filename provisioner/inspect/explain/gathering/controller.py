"""Reads who should be working: the leases, and the pods if nobody renews them."""

import asyncio
from dataclasses import replace
from datetime import datetime

from provisioner.inspect.explain.view_rules import ControllerView, Lease
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.controller_rules import OUR_HOLDER, is_ours
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.reading.kinds import WATCHED_PODS
from provisioner.inspect.reading.leases import lease_namespace
from provisioner.inspect.reading.setup_kind_rules import SeenLease
from provisioner.inspect.reading.setup_kinds import SEEN_LEASES
from provisioner.inspect.shell_words import is_name
from provisioner.model.errors import KubeError
from provisioner.model.leadership import lease_names

_NAMESPACES = ("ebs-provisioner", "kube-system")
_STOCK = "ebs-csi-controller"


async def controller(
    cluster: Cluster, driver: str, namespace: str, now: datetime
) -> ControllerView:
    """Who holds the leases, and in which pod; all pods are read only if somebody does not.

    Args:
        cluster: is asked.
        driver: whose controller it is.
        namespace: of the leases; "" to look for them.
        now: by the API server's clock.
    """
    namespace = await lease_namespace(cluster, driver, namespace, now)
    names = lease_names(driver)
    seen = await asyncio.gather(*(cluster.one(SEEN_LEASES, name, namespace) for name in names))
    # What cannot be read proves nothing; without any here, they may be where nobody could look.
    verbs = ("get",) if any(seen) else ("get", "list")
    if None in seen and cluster.misses(SEEN_LEASES, *verbs):
        return ControllerView()
    leases = tuple(_lease(name, each) for name, each in zip(names, seen, strict=True))
    held = {each.holder for each in leases if each.is_held(now)}
    pods = {each: await _pod_of(cluster, each) for each in held}
    known = tuple(
        replace(each, pod=pods[each.holder]) if each.is_held(now) else each for each in leases
    )
    if all(each.is_held(now) for each in leases):
        return ControllerView(known, namespace)
    return ControllerView(known, namespace, tuple(await _pods(cluster)))


def _lease(name: str, found: SeenLease | None) -> Lease:
    if found is None:
        return Lease(name, exists=False)
    spec = found.spec
    return Lease(
        name,
        holder=spec.holder_identity or "",
        renewed_at=spec.renew_time,
        duration_s=spec.lease_duration_seconds or 15,
    )


async def _pod_of(cluster: Cluster, holder: str) -> str:
    """The key of the pod that holds a lease; "" if that is not clear, which is no gap.

    Ours writes "ebs-provisioner_POD_…", a stock sidecar its host name. The lease may be in another
    namespace, and anybody may call a pod like that.
    """
    name = holder.removeprefix(OUR_HOLDER).partition("_")[0]
    if not is_name(name):
        return ""
    try:
        found = await cluster.client.list(WATCHED_PODS, field_selector=f"metadata.name={name}")
    except KubeError:
        return ""
    keys = [each.key for each in found.items if _is_controller(each)]
    return keys[0] if len(keys) == 1 else ""


def _is_controller(pod: WatchedPod) -> bool:
    return is_ours(pod, "controller") or pod.labels.get("app") == _STOCK


async def _pods(cluster: Cluster) -> list[WatchedPod]:
    return [
        pod
        for namespace in _NAMESPACES
        for pod in await cluster.every(WATCHED_PODS, namespace=namespace)
        if _is_controller(pod)
    ]
