"""What names no EBS volume or snapshot is its own object's trouble; all others go on, also after a
restart, when all that was there before is looked at first.

One of the handles is written by a tenant who may do no more than create pods: kube-controller-manager
makes an attachment of whatever a pod names in ``awsElasticBlockStore``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from provisioner.model.persistent_volume import finalizer_of_attacher
from provisioner.sandbox.nodes import DRIVER
from tests.cluster import copies
from tests.cluster.background import Background
from tests.cluster.cluster import ATTACHMENTS, Cluster, opened
from tests.cluster.copies import CONTENTS, snapshots_of
from tests.cluster.place import Place, a_place
from tests.cluster.snapshot_hands import a_class, a_source, give, take

pytestmark = pytest.mark.asyncio(loop_scope="module")

WITH_MARKS = ("--cluster-id", "prod")
NODE_LOCAL = "local-ebs://dev/xvdbz"
POD = {
    "metadata": {"name": "evil"},
    "spec": {
        "containers": [
            {"name": "c", "image": "busybox", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        ],
        "volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "foo"}}],
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    async with opened(background, *WITH_MARKS) as running:
        yield running


async def refused(cluster: Cluster, handle: str) -> dict[str, Any]:
    """The attachment of a handle, once it says that this is no volume."""

    async def told() -> dict[str, Any] | None:
        for each in (await cluster.api.get(ATTACHMENTS))["items"]:
            said = each.get("status", {}).get("attachError", {}).get("message", "")
            if f"{handle!r}, which is not an EBS volume" in said:
                return dict(each)
        return None

    return await cluster.until(f"a refusal of {handle}", told)


async def test_claims_go_on_beside_attachments_that_name_no_volume(cluster: Cluster) -> None:
    async with a_place(cluster) as place:
        class_name = await place.storage_class()
        persistent_volume = await place.static_pv(NODE_LOCAL)
        odd = await place.attachment(persistent_volume, cluster.instance().private_dns_name)
        await place.api.create(f"/api/v1/namespaces/{place.name}/pods", POD)
        assert (await refused(cluster, NODE_LOCAL))["metadata"]["name"] == odd
        tenants = (await refused(cluster, "foo"))["metadata"]["name"]

        await cluster.stop()
        # As aws-ebs-csi-driver holds its node-local volumes.
        held = {"finalizers": [finalizer_of_attacher(DRIVER)]}
        await place.api.patch(f"{ATTACHMENTS}/{odd}", {"metadata": held})
        await cluster.start(*WITH_MARKS)

        await place.claim(class_name, "after")
        await place.bound("after")
        assert not cluster.said("cannot describe volumes")
        await place.remove(f"{ATTACHMENTS}/{odd}")
        await place.remove(f"/api/v1/namespaces/{place.name}/pods/evil")
        await place.remove(f"{ATTACHMENTS}/{tenants}")


async def test_a_snapshot_becomes_ready_beside_one_that_is_none(cluster: Cluster) -> None:
    async with a_place(cluster) as place:
        await a_source(place)
        await give(place, "snapshot-0typo", policy="Delete")
        async with a_class(place):
            await take(place)
            await copies.ready(place, "monday")
            await place.remove(f"{snapshots_of(place)}/monday")
        given = await cluster.until("a refusal of the given one", lambda: given_error(place))
        assert "'snapshot-0typo', which is not an EBS snapshot" in given
        await place.remove(f"{snapshots_of(place)}/given")
        await place.remove(f"{CONTENTS}/{place.name}")


async def given_error(place: Place) -> str:
    found = await place.api.get(f"{snapshots_of(place)}/given")
    return str(found.get("status", {}).get("error", {}).get("message", ""))
