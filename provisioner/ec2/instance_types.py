"""Instance types as EC2 tells them, a whole family at a time: many families a call."""

from collections.abc import Mapping
from typing import Any

from provisioner.ec2.batches import chunks, one_of, pages
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.pace import Pace
from provisioner.model.attachment_limit import DescribedType

PAGE = 100  # DescribeInstanceTypes takes no more
FAMILIES_PER_CALL = 50
WINDOW_S = 0.5
# A type's limits do not change; new sizes come to a family now and then.
FRESH_FOR_S = 3600.0


class InstanceTypes:
    """Look-ups of families, remembered for an hour."""

    def __init__(self, calls: Ec2Calls, pace: Pace | None = None) -> None:
        self._calls = calls
        self._families = Coalescer[tuple[DescribedType, ...]](
            self._fetch, window_s=WINDOW_S, fresh_for_s=FRESH_FOR_S, pace=pace
        )

    async def family(self, name: str) -> tuple[DescribedType, ...]:
        """All types of a family (such as "m5") in this region; none if EC2 knows no such family.

        Raises:
            Ec2Error: EC2 could not be asked; PERMISSION_DENIED above all, for a right that older
                policies lack.
        """
        return await self._families.get(name)

    async def close(self) -> None:
        """Stop looking."""
        await self._families.close()

    async def _fetch(self, names: list[str]) -> Mapping[str, tuple[DescribedType, ...]]:
        found: dict[str, tuple[DescribedType, ...]] = dict.fromkeys(names, ())
        # A filter, not InstanceTypes: for one unknown type EC2 would refuse all of them.
        for some in chunks(names, FAMILIES_PER_CALL):
            params = {
                "Filters": [one_of("instance-type", [f"{name}.*" for name in some])],
                "MaxResults": PAGE,
            }
            async for page in pages(self._ask, params):
                for answer in page["InstanceTypes"]:
                    if "MaximumEbsAttachments" in answer.get("EbsInfo", {}):
                        each = DescribedType.read(answer)
                        found[each.family] = (*found.get(each.family, ()), each)
        return found

    async def _ask(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._calls.call("DescribeInstanceTypes", params, background=True)
