"""EC2 refuses what a claim needs: each break is of one claim, volume or snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.cluster import growing, snapshot_hands
from tests.cluster.broken import quiet_nodes
from tests.cluster.broken.record import Matrix, Section
from tests.cluster.cluster import PVS, Json, handle_of, token_of
from tests.cluster.copies import in_zones, snapshots_of
from tests.cluster.place import Place
from tests.cluster.refusals import OVER_QUOTA

matrix = Matrix(Section.CLAIM_PENDING)
broken = matrix.broken

NOT_AUTHORIZED: Json = {
    "code": "UnauthorizedOperation",
    "message": "You are not authorized to perform this operation.",
    "http_status": 403,
}
FULL: list[Json] = [
    {"zone": "us-east-1a", "type": "sc1"},
    {"zone": "us-east-1a", "type": "io2", "code": "VolumeTypeNotAvailableInZone"},
]
"""What EC2 has no room for while the matrix runs; no other claim there is of these types."""
ALWAYS = 1_000_000
_MODIFYING = asyncio.Lock()
"""The next modification is the one that fails, so two stories must not modify at once."""
_LATE_S = 60.0
"""Until after the looks of both commands."""
SLOW_S = 120.0
"""A quota is reported after a minute of searching for what may have been created."""


async def refused(place: Place, **fault: Any) -> None:
    """Have EC2 refuse each CreateVolume for the claim "data", which it has not heard of yet."""
    claim = await place.waiting_claim()
    match = {"ClientToken": token_of(claim)}
    await place.cluster.fault("CreateVolume", n=ALWAYS, **{"match": match} | fault)
    await place.choose_node(claim)


@broken("The role may not create volumes", "PermissionDenied")
@asynccontextmanager
async def may_not_create(place: Place) -> AsyncIterator[str]:
    await refused(place, **NOT_AUTHORIZED)
    await place.told("PermissionDenied")
    yield "pvc data"


@broken(
    "The role may not use the KMS key",
    "EncryptionKeyUnusable",
    words=("a right is missing", "default KMS key for EBS", "sets no kmsKeyId", "--as-controller"),
)
@asynccontextmanager
async def may_not_use_the_key(place: Place) -> AsyncIterator[str]:
    parameters = {"type": "gp3", "encrypted": "true"}
    await place.storage_class("waits", waits=True, parameters=parameters)
    text = "The user is not authorized to use the KMS key."
    await refused(place, code="KMSKeyAccessDenied", message=text, http_status=403)
    await place.told("EncryptionKeyUnusable")
    yield "pvc data"


@broken("The controller's AWS credentials have expired", "CredentialsInvalid")
@asynccontextmanager
async def expired(place: Place) -> AsyncIterator[str]:
    text = "The security token included in the request is expired"
    await refused(place, code="ExpiredToken", message=text, http_status=400)
    await place.told("CredentialsInvalid")
    yield "pvc data"


@broken("The zone has no room for the volume type", "ZoneOutOfCapacity")
@asynccontextmanager
async def zone_is_full(place: Place) -> AsyncIterator[str]:
    await in_one_zone(place, {"type": "sc1"})
    await place.told("ZoneOutOfCapacity")
    yield "pvc data"


@broken("The zone does not offer the volume type", "VolumeTypeNotInZone")
@asynccontextmanager
async def type_is_not_there(place: Place) -> AsyncIterator[str]:
    await in_one_zone(place, {"type": "io2", "iops": "3000"})
    await place.told("VolumeTypeNotInZone")
    yield "pvc data"


async def in_one_zone(place: Place, parameters: Json, name: str = "data") -> None:
    """A claim of a class with these parameters, whose volumes are all made in us-east-1a."""
    class_name = await place.storage_class(
        parameters=parameters, allowedTopologies=in_zones("us-east-1a")
    )
    await place.claim(class_name, name, resources={"requests": {"storage": "125Gi"}})


@broken("A quota of the account is used up", "QuotaExceeded")
@asynccontextmanager
async def over_quota(place: Place) -> AsyncIterator[str]:
    await refused(place, **OVER_QUOTA)
    await place.told("QuotaExceeded", timeout_s=SLOW_S)
    yield "pvc data"


@broken("The role may not delete volumes", "PermissionDenied", section=Section.VOLUME_STAYS)
@asynccontextmanager
async def may_not_delete(place: Place) -> AsyncIterator[str]:
    pv = await place.a_volume()
    await not_authorized(place, "DeleteVolume", handle_of(pv))
    name = pv["metadata"]["name"]
    await place.api.delete(f"{place.claims}/data")
    await place.told("PermissionDenied", name=name, namespace="default")
    yield f"pv {name}"
    await place.api.patch(f"{PVS}/{name}", {"metadata": {"labels": {"look": "again"}}})


async def not_authorized(place: Place, action: str, volume_id: str) -> None:
    """Have EC2 refuse an action on a volume from now on."""
    match = {"VolumeId": volume_id}
    await place.cluster.fault(action, n=ALWAYS, match=match, **NOT_AUTHORIZED)


@broken("The role may not attach volumes", "PermissionDenied", section=Section.POD_CREATING)
@asynccontextmanager
async def may_not_attach(place: Place) -> AsyncIterator[str]:
    pv = await quiet_nodes.a_volume(place)
    await not_authorized(place, "AttachVolume", handle_of(pv))
    async with quiet_nodes.a_starting_pod(place, pv) as attachment:
        await place.attach_error(attachment, "not authorized")
        yield "pod data"


@broken("The role may not modify volumes", "PermissionDenied", section=Section.NOT_GROWN)
@asynccontextmanager
async def may_not_modify(place: Place) -> AsyncIterator[str]:
    _, volume_id = await growing.a_volume(place)
    await not_authorized(place, "ModifyVolume", volume_id)
    await growing.ask(place, "24Gi")
    await growing.told(place, "VolumeResizeFailed", "PermissionDenied")
    yield "pvc data"


@broken("The role may not take snapshots", "PermissionDenied", section=Section.SNAPSHOT)
@asynccontextmanager
async def may_not_snapshot(place: Place) -> AsyncIterator[str]:
    volume_id = await snapshot_hands.a_source(place)
    await not_authorized(place, "CreateSnapshot", volume_id)
    async with snapshot_hands.a_class(place):
        await snapshot_hands.take(place)
        await snapshot_hands.error_of(place, "PermissionDenied")
        yield "snapshot monday"
        await place.remove(f"{snapshots_of(place)}/monday")


@broken(
    "The volume's modifications of 24 hours are used up",
    "ModificationLimitReached",
    section=Section.NOT_GROWN,
)
@asynccontextmanager
async def budget_used(place: Place) -> AsyncIterator[str]:
    _, volume_id = await growing.a_volume(place)
    async with _MODIFYING:
        for iops in (3_100, 3_200, 3_300, 3_400):
            change = {"VolumeId": volume_id, "Iops": iops}
            await asyncio.to_thread(place.cluster.ec2.modify_volume, **change)
    await growing.ask(place, "24Gi")
    await growing.told(place, "", "ModificationLimitReached")
    yield "pvc data"


@broken(
    "The modification of the volume has failed in EC2",
    "VolumeInWrongState",
    section=Section.NOT_GROWN,
)
@asynccontextmanager
async def modification_failed(place: Place) -> AsyncIterator[str]:
    _, volume_id = await growing.a_volume(place)
    async with _MODIFYING:
        await place.cluster.control(failing_modifications=1)
        await growing.ask(place, "24Gi")
        await place.is_requested(volume_id, "ModifyVolume")
        # The next try would be well, and end the trouble before anybody looks.
        late: Json = {"do": "delay", "delay_s": _LATE_S, "match": {"VolumeId": volume_id}}
        await place.cluster.fault("ModifyVolume", n=ALWAYS, **late)
    await growing.told(place, "VolumeResizeFailed")
    yield "pvc data"
