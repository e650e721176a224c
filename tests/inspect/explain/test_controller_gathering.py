"""What is read of the leases: all at once, and what their absence proves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from provisioner.inspect.explain.gathering.controller import controller
from provisioner.inspect.explain.view_rules import ControllerView
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.reading.setup_kind_rules import SeenLease
from provisioner.model.leadership import lease_names
from tests.inspect.doctor import evidence as e
from tests.inspect.lease_api import LeaseApi

NAMES = lease_names(e.DRIVER)


def old(*names: str) -> list[SeenLease]:
    """Of a driver that was removed."""
    return [e.lease(each, "gone", ago_s=9000.0) for each in names]


async def seen(api: LeaseApi, namespace: str = "") -> ControllerView:
    return await controller(Cluster(cast("Any", api)), e.DRIVER, namespace, e.NOW)


async def test_the_leases_are_read_at_the_same_time():
    for namespace in ("", "storage"):
        api = LeaseApi(*(e.lease(each, namespace=namespace or "kube-system") for each in NAMES))
        found = await seen(api, namespace)

        assert [each.name for each in found.leases if each.is_held(e.NOW)] == [*NAMES]
        assert api.most == len(NAMES)


async def test_a_controller_is_seen_behind_the_leases_of_a_removed_one():
    found = await seen(
        LeaseApi(*old(*NAMES), *(e.lease(each, namespace="storage") for each in NAMES))
    )

    assert found.namespace == "storage"
    assert all(each.is_held(e.NOW + timedelta(seconds=1)) and each.is_ours for each in found.leases)


async def test_old_leases_count_where_no_others_can_be_listed():
    for names in (NAMES, NAMES[:3]):
        found = await seen(LeaseApi(*old(*names), lists=False))

        assert found.namespace == "kube-system"
        assert [each.name for each in found.leases if each.exists] == [*names]
        assert not any(each.is_held(e.NOW) for each in found.leases)


async def test_without_any_lease_nothing_is_known_where_others_cannot_be_listed():
    assert await seen(LeaseApi(lists=False)) == ControllerView()
    assert not any(each.exists for each in (await seen(LeaseApi())).leases)


OURS = {"app.kubernetes.io/name": "ebs-provisioner", "app.kubernetes.io/component": "controller"}


def pod(name: str, namespace: str, **labels: str) -> WatchedPod:
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return e.read(WatchedPod, {"metadata": meta})


@pytest.mark.parametrize(
    ("holder", "pods", "key"),
    [
        ("ebs-provisioner_c-0_7f", [pod("c-0", "storage", **OURS)], "storage/c-0"),
        (
            "stock-1",
            [pod("stock-1", "kube-system", app="ebs-csi-controller")],
            "kube-system/stock-1",
        ),
        ("ebs-provisioner_c-0_7f", [pod("c-0", "shop")], ""),
        ("ebs-provisioner_c-0_7f", [pod("c-0", each, **OURS) for each in ("a", "b")], ""),
        ("--all", [], ""),
    ],
)
async def test_the_controllers_pod_is_found_by_its_name_in_any_namespace(
    holder: str, pods: list[WatchedPod], key: str
):
    leases = (e.lease(each, holder) for each in NAMES)
    found = await seen(LeaseApi(*leases, pods=pods))

    assert {each.pod for each in found.leases} == {key}


async def test_the_pod_is_known_by_each_lease_that_is_held_whoever_does_not_hold_the_others():
    """The stock driver holds no lease for snapshots where no external-snapshotter runs."""
    there = pod("stock-1", "kube-system", app="ebs-csi-controller")
    leases = (*(e.lease(each, "stock-1") for each in NAMES[:2]), *old(NAMES[2]))
    found = await seen(LeaseApi(*leases, pods=[there]))

    assert [each.pod for each in found.leases] == ["kube-system/stock-1"] * 2 + [""] * 2
