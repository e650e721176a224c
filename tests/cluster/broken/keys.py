"""KMS keys that EC2 takes and then cannot use: the volume vanishes after its creation.

The controller looks for such a volume for a minute, so these are slow, and held by no other story.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cluster.broken.record import Matrix, Section
from tests.cluster.broken.refused import SLOW_S
from tests.cluster.cluster import CLASSES
from tests.cluster.place import Place
from tests.sandbox import lab

matrix = Matrix(Section.CLAIM_PENDING)
broken = matrix.broken


@broken(
    "The KMS key of the class does not exist", "EncryptionKeyUnusable", check="kms-matrix-lost-key"
)
@asynccontextmanager
async def key_is_lost(place: Place) -> AsyncIterator[str]:
    key = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    # A key is missing for certain only where EC2 knows a volume of the cluster, and other stories
    # have PersistentVolumes without one.
    await place.claim(await place.storage_class(), "whole")
    await place.bound("whole")
    async with _of_key(place, "matrix-lost-key", key):
        yield "pvc data"


@broken(
    "The KMS key of the class is disabled", "EncryptionKeyUnusable", check="kms-matrix-disabled-key"
)
@asynccontextmanager
async def key_is_disabled(place: Place) -> AsyncIterator[str]:
    kms = lab.client(place.cluster.sandbox.ec2_endpoint, service="kms")
    made = (await asyncio.to_thread(kms.create_key))["KeyMetadata"]
    await asyncio.to_thread(kms.disable_key, KeyId=made["KeyId"])
    async with _of_key(place, "matrix-disabled-key", made["Arn"]):
        yield "pvc data"


@asynccontextmanager
async def _of_key(place: Place, class_name: str, key: str) -> AsyncIterator[None]:
    """A claim of a class with this key; the class has a fixed name, that of its check."""
    name = await place.storage_class(
        metadata={"name": class_name},
        parameters={"type": "gp3", "encrypted": "true", "kmsKeyId": key},
    )
    try:
        await place.claim(name)
        await place.told(key, "kms:CreateGrant", timeout_s=SLOW_S)
        yield
    finally:
        await place.api.delete(f"{CLASSES}/{class_name}")
