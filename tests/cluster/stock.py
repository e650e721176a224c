"""The stock driver, as far as a controller of ours can tell: four leases, and volumes of its own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from provisioner.model import leadership
from provisioner.model.names import (
    CLAIM_NAME,
    CLAIM_NAMESPACE,
    MADE_BY_DRIVER,
    PERSISTENT_VOLUME_NAME,
    VOLUME_NAME,
)
from provisioner.sandbox.api import Api, ApiError
from tests.cluster import hands
from tests.cluster.hands import DRIVER, Ec2Hand, Json

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
NAMES = leadership.lease_names(DRIVER)
DURATION_S = 15
RETRY_S = 5.0
IDENTITY = "ip-10-0-0-1"
"""The stock sidecars are called by the host's name alone."""


async def holders(api: Api, driver: str = DRIVER) -> list[str]:
    """Who holds each lease, "" for nobody."""
    found = {each["metadata"]["name"]: each["spec"] for each in await hands.items(api, LEASES)}
    names = leadership.lease_names(driver)
    return [found.get(name, {}).get("holderIdentity") or "" for name in names]


async def forget(api: Api, driver: str = DRIVER) -> None:
    """Remove the leases: nobody has to wait for those of a killed process."""
    for name in leadership.lease_names(driver):
        await hands.discard(api, f"{LEASES}/{name}")


class Sidecar:
    """One sidecar's leader election as client-go does it: 15 s, renewed every 5 s by an update."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self.name = name
        self.leads = False
        self._seen: Json = {}
        self._seen_at_s = 0.0

    async def run(self) -> None:
        """Acquire, then renew until cancelled; nothing is released."""
        while True:
            with contextlib.suppress(ApiError):  # a conflict: somebody was faster
                self.leads = await self._try()
            await asyncio.sleep(RETRY_S)

    async def release(self) -> None:
        """What client-go's ReleaseOnCancel writes."""
        self.leads = False
        lease = await self._api.get(f"{LEASES}/{self.name}")
        await self._put(lease, holderIdentity="", leaseDurationSeconds=1)

    async def _try(self) -> bool:
        try:
            lease = await self._api.get(f"{LEASES}/{self.name}")
        except ApiError as error:
            if error.status != 404:
                raise
            body = {"metadata": {"name": self.name}, "spec": {}}
            lease = await self._api.create(LEASES, body)
        spec = lease["spec"]
        now_s = asyncio.get_running_loop().time()
        if spec != self._seen:
            self._seen, self._seen_at_s = spec, now_s
        holder = spec.get("holderIdentity")
        valid = now_s < self._seen_at_s + spec.get("leaseDurationSeconds", 0)
        if holder and holder != IDENTITY and valid:
            return False
        transitions = spec.get("leaseTransitions", 0) + (holder != IDENTITY)
        record = {"leaseDurationSeconds": DURATION_S, "leaseTransitions": transitions}
        await self._put(lease, holderIdentity=IDENTITY, **record)
        return True

    async def _put(self, lease: Json, **record: Any) -> None:
        record["renewTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        changed = lease | {"spec": lease["spec"] | record}
        await self._api.request("PUT", f"{LEASES}/{self.name}", changed)


class Stock:
    """All four sidecars, each for itself."""

    def __init__(self, api: Api, driver: str = DRIVER) -> None:
        self.sidecars = [Sidecar(api, name) for name in leadership.lease_names(driver)]
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run them; those that still run at the end are cut off."""
        for sidecar in self.sidecars:
            self._tasks[sidecar.name] = asyncio.create_task(sidecar.run(), name=sidecar.name)
        try:
            yield
        finally:
            for sidecar in self.sidecars:
                await self.cut_off(sidecar)

    def leads(self) -> bool:
        """Whether all four lead."""
        return all(sidecar.leads for sidecar in self.sidecars)

    async def cut_off(self, sidecar: Sidecar) -> None:
        """A sidecar ends without a word; its lease has to expire."""
        task = self._tasks.pop(sidecar.name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop(self, sidecar: Sidecar) -> None:
        """A sidecar ends and gives its lease back."""
        await self.cut_off(sidecar)
        await sidecar.release()


def begin_volume(hand: Ec2Hand, claim: Json, zone: str) -> str:
    """Call CreateVolume as aws-ebs-csi-driver v1.64 does for a claim of 4 GiB; the volume's id."""
    meta = claim["metadata"]
    name = f"pvc-{meta['uid']}"
    made = hand.ec2.create_volume(
        AvailabilityZone=zone,
        Size=4,
        VolumeType="gp3",
        ClientToken=hashlib.sha256(name.encode()).hexdigest(),
        TagSpecifications=hands.tag_list(
            {
                VOLUME_NAME: name,
                MADE_BY_DRIVER: "true",
                CLAIM_NAME: meta["name"],
                CLAIM_NAMESPACE: meta["namespace"],
                PERSISTENT_VOLUME_NAME: name,
            }
        ),
    )
    return str(made["VolumeId"])
