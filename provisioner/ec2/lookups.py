"""Look-ups that many who ask for one thing each share: by id, name, address, or name tag.

EC2 has no filter by client token, so a volume whose CreateVolume reply was lost is found by the
tag that the call wrote; so is a snapshot, of which CreateSnapshot takes no token at all.
Where none is remembered, an answer is never older than the question: who asks while EC2 is asked
is in the next call.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from provisioner.ec2.batches import FILTER_VALUES, PAGE, ask_about, chunks, one_of, pages
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.pace import Pace
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.model import tags
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.errors import Ec2Error, StorageError
from provisioner.model.instance_type_limit import DescribedType
from provisioner.model.modification import Modification
from provisioner.model.names import SNAPSHOT_NAME, VOLUME_NAME
from provisioner.model.volume import Instance, Volume

V = TypeVar("V")
WINDOW_S = 0.5
READ_WINDOW_S = 0.05
FAMILIES_PER_CALL = 50
TYPES_A_PAGE = 100  # DescribeInstanceTypes takes no more
# A type's limits do not change; new sizes come to a family now and then.
FAMILY_FRESH_FOR_S = 3600.0
RUNNING = "running"
_OWNED = ("owned", "shared")
# EC2 counts the values of all filters of a call together: one state, two values of the tag.
VALUES_PER_CALL = FILTER_VALUES - 1 - len(_OWNED)
_ALL_ZONES = "all"


class _Shared(Generic[V]):
    """What those who ask within a short window are answered together."""

    def __init__(
        self,
        fetch: Callable[[list[str]], Awaitable[Mapping[str, V | StorageError]]],
        window_s: float,
        pace: Pace | None,
        *,
        fresh_for_s: float = 0.0,
    ) -> None:
        self._coalescer = Coalescer[V](fetch, window_s=window_s, fresh_for_s=fresh_for_s, pace=pace)

    async def close(self) -> None:
        """Stop looking; all waiting callers are cancelled."""
        await self._coalescer.close()


class NameLookUps(_Shared[list[Volume]]):
    """Volumes by ``CSIVolumeName``, many names a call, at the common pace."""

    def __init__(self, volumes: Volumes, pace: Pace | None = None) -> None:
        super().__init__(self._fetch, WINDOW_S, pace)
        self._volumes = volumes

    async def find(self, name: str) -> list[Volume]:
        """All volumes with this name: none, or not shown by EC2 yet; usually one.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._coalescer.get(name)

    async def _fetch(self, names: list[str]) -> Mapping[str, list[Volume] | Ec2Error]:
        found: dict[str, list[Volume]] = {name: [] for name in names}

        async def ask(some: list[str]) -> None:
            for volume in await self._volumes.find_any(VOLUME_NAME, some):
                found[volume.tags[VOLUME_NAME]].append(volume)

        return found | await ask_about(names, FILTER_VALUES, ask)


class SnapshotLookUps(_Shared[list[EbsSnapshot]]):
    """EBS snapshots by the value of a tag, many values a call, at the common pace."""

    def __init__(
        self, snapshots: Snapshots, pace: Pace | None = None, *, tag: str = SNAPSHOT_NAME
    ) -> None:
        super().__init__(self._fetch, WINDOW_S, pace)
        self._snapshots = snapshots
        self._tag = tag

    async def find(self, name: str) -> list[EbsSnapshot]:
        """All snapshots with this value: none, or not shown by EC2 yet; usually one.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._coalescer.get(name)

    async def _fetch(self, names: list[str]) -> Mapping[str, list[EbsSnapshot] | Ec2Error]:
        found: dict[str, list[EbsSnapshot]] = {name: [] for name in names}

        async def ask(some: list[str]) -> None:
            for snapshot in await self._snapshots.find_any(self._tag, some):
                found[snapshot.tags[self._tag]].append(snapshot)

        return found | await ask_about(names, FILTER_VALUES, ask)


class VolumeReads(_Shared[Volume | None]):
    """Volumes by id, many a call, at the common pace."""

    def __init__(self, volumes: Volumes, pace: Pace | None = None) -> None:
        super().__init__(self._fetch, READ_WINDOW_S, pace)
        self._volumes = volumes

    async def volume(self, volume_id: str) -> Volume | None:
        """A volume as EC2 shows it now; None if EC2 does not know it (or not yet).

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        return await self._coalescer.get(volume_id)

    async def _fetch(self, volume_ids: list[str]) -> Mapping[str, Volume | Ec2Error | None]:
        return dict.fromkeys(volume_ids) | await self._volumes.describe(volume_ids)


class ModificationReads(_Shared[Modification | None]):
    """The latest modifications of volumes by the volume's id, many a call, at the common pace."""

    def __init__(self, modifications: Modifications, pace: Pace | None = None) -> None:
        super().__init__(self._fetch, READ_WINDOW_S, pace)
        self._modifications = modifications

    async def latest(self, volume_id: str) -> Modification | None:
        """The latest modification of a volume; None if it was never modified.

        A modification that has just begun may be missing for some seconds, or the one before it be
        shown (EC2 is eventually consistent).

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        return await self._coalescer.get(volume_id)

    async def _fetch(self, volume_ids: list[str]) -> Mapping[str, Modification | Ec2Error | None]:
        return dict.fromkeys(volume_ids) | await self._modifications.latest(volume_ids)


class ZoneNames(_Shared[Mapping[str, str]]):
    """Zone names by zone id; one DescribeAvailabilityZones for the life of the process.

    Both never change for an account. Source: AWS user guide "Availability Zone IDs" (read
    2026-11-21).
    """

    def __init__(self, calls: Ec2Calls) -> None:
        super().__init__(self._fetch, 0.0, None, fresh_for_s=math.inf)
        self._calls = calls

    async def by_id(self) -> Mapping[str, str]:
        """The names of all zones, Local Zones too, whether the account has opted in or not.

        Raises:
            Ec2Error: EC2 could not be asked; the next one who asks tries again.
        """
        return await self._coalescer.get(_ALL_ZONES)

    async def _fetch(self, _: list[str]) -> Mapping[str, Mapping[str, str]]:
        answer = await self._calls.call("DescribeAvailabilityZones", {"AllAvailabilityZones": True})
        zones = answer["AvailabilityZones"]
        names = {zone["ZoneId"]: zone["ZoneName"] for zone in zones if zone.get("ZoneId")}
        return {_ALL_ZONES: names}


class InstanceTypes(_Shared[tuple[DescribedType, ...]]):
    """Instance types as EC2 tells them, by family, many a call; remembered for an hour."""

    def __init__(self, calls: Ec2Calls, pace: Pace | None = None) -> None:
        super().__init__(self._fetch, WINDOW_S, pace, fresh_for_s=FAMILY_FRESH_FOR_S)
        self._calls = calls

    async def family(self, name: str) -> tuple[DescribedType, ...]:
        """All types of a family (such as "m5") in this region; none if EC2 knows no such family.

        Raises:
            Ec2Error: EC2 could not be asked; PERMISSION_DENIED above all, for a right that older
                policies lack.
        """
        return await self._coalescer.get(name)

    async def _fetch(self, names: list[str]) -> Mapping[str, tuple[DescribedType, ...]]:
        found: dict[str, tuple[DescribedType, ...]] = dict.fromkeys(names, ())
        # A filter, not InstanceTypes: for one unknown type EC2 would refuse all of them.
        for some in chunks(names, FAMILIES_PER_CALL):
            params = {
                "Filters": [one_of("instance-type", [f"{name}.*" for name in some])],
                "MaxResults": TYPES_A_PAGE,
            }
            async for page in pages(self._ask, params):
                for answer in page["InstanceTypes"]:
                    if "MaximumEbsAttachments" in answer.get("EbsInfo", {}):
                        each = DescribedType.read(answer)
                        found[each.family] = (*found.get(each.family, ()), each)
        return found

    async def _ask(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._calls.call("DescribeInstanceTypes", params, background=True)


class InstanceLookUps:
    """Running instances of this cluster by private name and address, many a call.

    Only those with the cluster's tag: in another cluster of the account, or another network, there
    may be an instance of the same name and address.
    """

    def __init__(self, calls: Ec2Calls, cluster_id: str, pace: Pace | None = None) -> None:
        self._calls = calls
        self._tag = one_of(f"tag:{tags.cluster_key(cluster_id)}", _OWNED)
        by_name = partial(self._fetch, "private-dns-name", _names)
        # It finds secondary addresses too, and private-ip-address none of further interfaces; no
        # filter is for the primary ones of all. What is not asked for is left out of the answer.
        by_address = partial(
            self._fetch, "network-interface.addresses.private-ip-address", _addresses
        )
        self._names = Coalescer[list[Instance]](
            by_name, window_s=WINDOW_S, fresh_for_s=0.0, pace=pace
        )
        self._addresses = Coalescer[list[Instance]](
            by_address, window_s=WINDOW_S, fresh_for_s=0.0, pace=pace
        )

    @property
    def region(self) -> str:
        """The Region in which all that is found runs."""
        return self._calls.region

    async def named(self, name: str) -> list[Instance]:
        """Running instances whose private DNS name is this one, in lower case.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._names.get(name)

    async def addressed(self, address: str) -> list[Instance]:
        """Running instances of which an interface has this as its primary private IPv4 address.

        A secondary one says nothing: pods have them (AWS's VPC CNI), and a kubelet may run in one.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._addresses.get(address)

    async def close(self) -> None:
        """Stop looking."""
        await self._names.close()
        await self._addresses.close()

    async def _fetch(
        self, name: str, shown: Callable[[Instance], Iterable[str]], values: list[str]
    ) -> Mapping[str, list[Instance] | Ec2Error]:
        found: dict[str, dict[str, Instance]] = {value: {} for value in values}
        state = one_of("instance-state-name", [RUNNING])

        async def ask(some: list[str]) -> None:
            params = {"Filters": [one_of(name, some), state, self._tag], "MaxResults": PAGE}
            async for page in pages(self._ask, params):
                for instance in page["Instances"]:
                    for value in shown(instance):
                        if value in found:
                            found[value][instance.instance_id] = instance

        refused = await ask_about(values, VALUES_PER_CALL, ask)
        return {value: list(each.values()) for value, each in found.items()} | refused

    async def _ask(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._calls.call("DescribeInstances", params)


def _names(instance: Instance) -> tuple[str, ...]:
    return (instance.private_dns_name.lower(),)


def _addresses(instance: Instance) -> tuple[str, ...]:
    return instance.private_addresses


async def any_instance(calls: Ec2Calls, ids: Sequence[str]) -> bool:
    """Whether one of these instances (up to 200) exists, in any state.

    Raises:
        Ec2Error: EC2 could not be asked; that is not a "no".
    """
    return await _any(calls, "DescribeInstances", "instance-id", ids)


async def any_volume(calls: Ec2Calls, ids: Sequence[str]) -> bool:
    """The same for volumes."""
    return await _any(calls, "DescribeVolumes", "volume-id", ids)


async def _any(calls: Ec2Calls, action: str, name: str, ids: Sequence[str]) -> bool:
    # By filters: an id that is none refuses no call then.
    params = {"Filters": [one_of(name, ids)], "MaxResults": PAGE}
    shown = action.removeprefix("Describe")
    async for page in pages(lambda params: calls.call(action, params), params):
        if page[shown]:
            return True
    return False
