"""What EC2 refuses one story, and how the story goes on."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.cluster.cluster import CLASSES, Cluster, Json, token_of
from tests.cluster.place import Place

OVER_QUOTA: Json = {
    "code": "VolumeLimitExceeded",
    "message": "You have exceeded your maximum gp3 storage limit of 50 TiB in this region.",
    "http_status": 400,
}


async def let_go(cluster: Cluster, volume_id: str) -> None:
    """What stopping the instance does."""
    await asyncio.to_thread(cluster.ec2.detach_volume, VolumeId=volume_id, Force=True)


async def refuse(place: Place, claim: Json, n: int = 1, **fault: Any) -> None:
    """Have the next creates for a claim fail."""
    match = {"ClientToken": token_of(claim)}
    await place.cluster.fault("CreateVolume", n=n, **{"match": match} | fault)


async def creates(place: Place, claim: Json) -> int:
    return len(await place.cluster.calls(token_of(claim), "CreateVolume"))


async def look_again(place: Place, suffix: str) -> None:
    """Spare the test the minute until the next try: a change of the class comes first."""
    labels = {"metadata": {"labels": {"look": "again"}}}
    await place.api.patch(f"{CLASSES}/{place.name}-{suffix}", labels)
