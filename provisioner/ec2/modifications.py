"""Modifications of volumes in EC2: begin one, look at the latest ones; nothing is waited for."""

from collections.abc import Iterable, Mapping
from typing import Any

from provisioner.ec2.batches import FILTER_VALUES, PAGE, ask_about, one_of, pages
from provisioner.ec2.calls import Ec2Calls, Gate
from provisioner.model.errors import Ec2Error
from provisioner.model.ids import is_volume_id
from provisioner.model.modification import Modification, ModifyRequest

IDS_PER_CALL = 500


class Modifications:
    """The latest modification of each EBS volume of one Region."""

    def __init__(self, calls: Ec2Calls) -> None:
        self._calls = calls

    async def modify(self, request: ModifyRequest, *, gate: Gate | None = None) -> Modification:
        """Send one ModifyVolume; the modification has usually just begun.

        There is no client token. Sent again after a lost reply it is refused with
        MODIFICATION_RUNNING, or, should the first one be completed, counts as another one.

        Args:
            request: what is to change.
            gate: the last look, right before the call is sent (see ``Ec2Calls.call``).

        Raises:
            Ec2Error: MODIFICATION_RUNNING, MODIFICATION_LIMIT (``retry_at``, ``retry_after_s`` or
                ``between_s`` if EC2 tells it), INVALID_REQUEST, QUOTA_EXCEEDED, VOLUME_NOT_FOUND,
                VOLUME_STATE, …;
                ``outcome`` UNKNOWN if it may have begun.
        """
        answer = await self._calls.call("ModifyVolume", _modify_params(request), gate=gate)
        modification: Modification = answer["Modification"]
        return modification

    async def latest(self, volume_ids: Iterable[str]) -> dict[str, Modification | Ec2Error]:
        """The latest modification of each of these volumes; of one never modified there is none.

        By a filter, at most 200 volumes a call: a call by ids fails for one that was never
        modified.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        found: dict[str, Modification | Ec2Error] = {}

        async def ask(ids: list[str]) -> None:
            params = {"Filters": [one_of("volume-id", ids)], "MaxResults": PAGE}
            async for page in pages(self._describe, params):
                found.update((each.volume_id, each) for each in page["Modifications"])

        return found | await ask_about(filter(is_volume_id, volume_ids), FILTER_VALUES, ask)

    async def look_for(self, volume_ids: Iterable[str]) -> dict[str, Modification | Ec2Error]:
        """As ``latest``."""
        return await self.latest(volume_ids)

    async def describe(self, volume_ids: Iterable[str]) -> dict[str, Modification | Ec2Error]:
        """As ``latest``, for volumes that have just been modified: by ids, at most 500 a call.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        found: dict[str, Modification | Ec2Error] = {}

        async def ask(ids: list[str]) -> None:
            answer = await self._describe({"VolumeIds": ids})
            found.update((each.volume_id, each) for each in answer["Modifications"])

        return found | await ask_about(filter(is_volume_id, volume_ids), IDS_PER_CALL, ask)

    async def _describe(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._calls.call("DescribeVolumesModifications", params)


def _modify_params(request: ModifyRequest) -> dict[str, Any]:
    wanted = {
        "VolumeId": request.volume_id,
        "Size": request.size_gib,
        "VolumeType": request.volume_type,
        "Iops": request.iops,
        "Throughput": request.throughput_mibps,
    }
    return {name: value for name, value in wanted.items() if value is not None}
