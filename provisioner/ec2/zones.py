"""The zones of the Region: which name each zone id has in this account."""

import math
from collections.abc import Mapping

from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.coalescer import Coalescer

_ALL = "all"


class ZoneNames:
    """Zone names by zone id; one DescribeAvailabilityZones for the life of the process.

    Both never change for an account. Source: AWS user guide "Availability Zone IDs" (read
    2026-11-21).
    """

    def __init__(self, calls: Ec2Calls) -> None:
        self._calls = calls
        self._coalescer = Coalescer[Mapping[str, str]](
            self._fetch, window_s=0.0, fresh_for_s=math.inf
        )

    async def by_id(self) -> Mapping[str, str]:
        """The names of all zones, Local Zones too, whether the account has opted in or not.

        Raises:
            Ec2Error: EC2 could not be asked; the next one who asks tries again.
        """
        return await self._coalescer.get(_ALL)

    async def close(self) -> None:
        """Stop asking."""
        await self._coalescer.close()

    async def _fetch(self, _: list[str]) -> Mapping[str, Mapping[str, str]]:
        answer = await self._calls.call("DescribeAvailabilityZones", {"AllAvailabilityZones": True})
        zones = answer["AvailabilityZones"]
        names = {zone["ZoneId"]: zone["ZoneName"] for zone in zones if zone.get("ZoneId")}
        return {_ALL: names}
