"""Volumes in EC2: make, delete, find, describe, untag; each one call, nothing waited for."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from provisioner.ec2.batches import chunks, without_missing
from provisioner.ec2.calls import Ec2Calls, Gate
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.quota import InUse
from provisioner.model.volume import CreateRequest, Volume

# EC2 devguide "Pagination": up to 1,000 ids a call; aws-ebs-csi-driver sends 500.
IDS_PER_CALL = 500
# FilterLimitExceeded: "maximum number of filter values specified on a single call is 200".
FILTER_VALUES = 200
PAGE = 500


class Volumes:
    """EBS volumes of one Region."""

    def __init__(self, calls: Ec2Calls) -> None:
        self._calls = calls

    async def create(self, request: CreateRequest, *, gate: Gate | None = None) -> Volume:
        """Send one CreateVolume, its tags with it; the volume may still be ``creating``.

        The same record sent again gives the same volume.

        Args:
            request: everything that EC2 is told.
            gate: the last look, right before the call is sent (see ``Ec2Calls.call``).

        Raises:
            Ec2Error: as in ``provisioner.ec2.errors``; ``outcome`` UNKNOWN if it may exist.
        """
        answer = await self._calls.call("CreateVolume", _create_params(request), gate=gate)
        volume: Volume = answer["Volume"]
        return volume

    async def dry_run(self, request: CreateRequest) -> Ec2Error | None:
        """What EC2 has against a CreateVolume, which is not carried out; None: nothing.

        Raises:
            Ec2Error: EC2 did not come to look at the request.
        """
        params = {**_create_params(request), "DryRun": True}
        del params["ClientToken"]  # nothing is made that it could stand for
        try:
            await self._calls.call("CreateVolume", params)
        except Ec2Error as answer:
            if answer.code == "DryRunOperation":
                return None
            if answer.reason is Reason.INVALID_REQUEST:
                return answer
            raise
        return None

    async def delete(self, volume_id: str, *, gate: Gate | None = None) -> None:
        """Send one DeleteVolume; a volume that is not there counts as deleted.

        Args:
            volume_id: the volume.
            gate: the last look, right before the call is sent (see ``Ec2Calls.call``).

        Raises:
            Ec2Error: VOLUME_IN_USE, PERMISSION_DENIED, …; ``outcome`` UNKNOWN if it may be gone.
        """
        try:
            await self._calls.call("DeleteVolume", {"VolumeId": volume_id}, gate=gate)
        except Ec2Error as failure:
            if failure.reason is not Reason.VOLUME_NOT_FOUND:
                raise

    async def find(
        self, *, tags: Mapping[str, str | None], background: bool = False
    ) -> list[Volume]:
        """All volumes that carry all of these tags, read to the last page.

        A new volume may be missing for some seconds (EC2 is eventually consistent).

        Args:
            tags: key and value; None stands for any value.
            background: nobody waits for it.

        Raises:
            Ec2Error: any page failed; there is no partial answer.
        """
        filters = [
            {"Name": "tag-key", "Values": [_pattern(key)]}
            if value is None
            else {"Name": f"tag:{key}", "Values": [_pattern(value)]}
            for key, value in tags.items()
        ]
        params = {"Filters": filters, "MaxResults": PAGE}
        found: dict[str, Volume] = {}  # a volume that changes between pages can come twice
        async for page in self._pages(params, background=background):
            found.update((volume.volume_id, volume) for volume in page if _has(volume, tags))
        return list(found.values())

    async def find_any(self, key: str, values: Sequence[str]) -> list[Volume]:
        """All volumes whose tag has one of these values: 200 values a call, read to the last page.

        Raises:
            Ec2Error: any page failed; there is no partial answer.
        """
        found: dict[str, Volume] = {}
        wanted = frozenset(values)
        for some in chunks(values, FILTER_VALUES):
            filters = [{"Name": f"tag:{key}", "Values": [_pattern(value) for value in some]}]
            async for page in self._pages({"Filters": filters, "MaxResults": PAGE}):
                found.update((v.volume_id, v) for v in page if v.tags.get(key) in wanted)
        return list(found.values())

    async def in_use(self, volume_type: str) -> InUse:
        """What all volumes of a type in this region come to, whoever made them; in background.

        Raises:
            Ec2Error: any page failed; there is no partial answer.
        """
        params = {
            "Filters": [{"Name": "volume-type", "Values": [volume_type]}],
            "MaxResults": PAGE,
        }
        found: dict[str, tuple[int, int]] = {}  # a volume can come twice, as in find
        async for page in self._pages(params, background=True):
            found.update((v.volume_id, (v.size_gib, v.iops or 0)) for v in page)
        return InUse(
            volumes=len(found),
            gib=sum(gib for gib, _ in found.values()),
            iops=sum(iops for _, iops in found.values()),
        )

    async def describe(
        self, volume_ids: Sequence[str], *, background: bool = False
    ) -> dict[str, Volume]:
        """What EC2 knows of these volumes; those that it does not know are absent.

        At most 500 ids a call. EC2 refuses a whole call for one unknown id: those that its text
        names are left out and the others asked for again at once; should that fail too, a filter
        by id is used, which only leaves out what is not there.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        found: dict[str, Volume] = {}
        for ids in chunks(volume_ids, IDS_PER_CALL):
            found.update(await self._describe(ids, background=background))
        return found

    async def look_for(
        self, volume_ids: Sequence[str], *, background: bool = False
    ) -> dict[str, Volume]:
        """As ``describe``, for volumes that may well not be there: by a filter, ≤ 200 ids a call.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        found: dict[str, Volume] = {}
        for ids in chunks(volume_ids, FILTER_VALUES):
            params = {"Filters": [{"Name": "volume-id", "Values": ids}], "MaxResults": PAGE}
            async for page in self._pages(params, background=background):
                found.update((volume.volume_id, volume) for volume in page)
        return found

    async def tag(self, volume_ids: Sequence[str], tags: Mapping[str, str]) -> None:
        """Write tags on many volumes, in background; those that are gone do not matter.

        Raises:
            Ec2Error: not all of them could be tagged; the same again is harmless.
        """
        written = [{"Key": key, "Value": value} for key, value in tags.items()]
        for ids in chunks(volume_ids, IDS_PER_CALL):
            await _on_all(
                ids,
                lambda some: self._calls.call(
                    "CreateTags", {"Resources": some, "Tags": written}, background=True
                ),
            )

    async def untag(self, volume_ids: Sequence[str], key: str) -> None:
        """Remove a tag, whatever its value, from many volumes; those that are gone do not matter.

        Raises:
            Ec2Error: not all of them could be untagged; the same again is harmless.
        """
        for ids in chunks(volume_ids, IDS_PER_CALL):
            await _on_all(
                ids,
                lambda some: self._calls.call(
                    "DeleteTags", {"Resources": some, "Tags": [{"Key": key}]}
                ),
            )

    async def _describe(self, ids: list[str], *, background: bool) -> dict[str, Volume]:
        for _ in range(2):
            if not ids:
                return {}
            try:
                params = {"VolumeIds": ids}
                answer = await self._calls.call("DescribeVolumes", params, background=background)
            except Ec2Error as failure:
                ids = without_missing(failure, ids, Reason.VOLUME_NOT_FOUND)
            else:
                return {volume.volume_id: volume for volume in answer["Volumes"]}
        return await self.look_for(ids, background=background)

    async def _pages(
        self, params: Mapping[str, Any], *, background: bool = False
    ) -> AsyncIterator[list[Volume]]:
        token: str | None = None
        while True:
            page = {**params, "NextToken": token} if token else params
            answer = await self._calls.call("DescribeVolumes", page, background=background)
            yield answer["Volumes"]
            token = answer["NextToken"]
            if not token:
                return


async def _on_all(ids: list[str], change: Callable[[list[str]], Awaitable[object]]) -> None:
    """Change many volumes by one call, or without those that are gone by a few more."""
    while ids:
        try:
            await change(ids)
        except Ec2Error as failure:
            rest = without_missing(failure, ids, Reason.VOLUME_NOT_FOUND)
            if len(rest) < len(ids):
                ids = rest
                continue
            middle = len(ids) // 2  # the text names none of them
            await _on_all(ids[:middle], change)
            await _on_all(ids[middle:], change)
        return


def _create_params(request: CreateRequest) -> dict[str, Any]:
    params: dict[str, Any] = {
        "AvailabilityZone": request.zone,
        "ClientToken": request.client_token,
        "Size": request.size_gib,
        "VolumeType": request.volume_type,
        "TagSpecifications": [
            {
                "ResourceType": "volume",
                "Tags": [{"Key": key, "Value": value} for key, value in request.tags],
            }
        ],
    }
    if not request.tags:
        del params["TagSpecifications"]
    if request.iops is not None:
        params["Iops"] = request.iops
    if request.throughput_mibps is not None:
        params["Throughput"] = request.throughput_mibps
    if request.encrypted:
        params["Encrypted"] = True
    if request.kms_key_id is not None:
        params["KmsKeyId"] = request.kms_key_id
    if request.multi_attach:
        params["MultiAttachEnabled"] = True
    if request.initialization_rate_mibps is not None:
        params["VolumeInitializationRate"] = request.initialization_rate_mibps
    if request.outpost_arn is not None:
        params["OutpostArn"] = request.outpost_arn
    return params


def _pattern(value: str) -> str:
    """A filter value that finds this text, and perhaps others: see ``_has``."""
    return value.replace("\\", "?")  # an escape character in EC2's filters, as * and ? are wild


def _has(volume: Volume, tags: Mapping[str, str | None]) -> bool:
    """Whether the volume really has the tags, letter for letter: filters know wildcards."""
    return all(
        key in volume.tags and value in {None, volume.tags[key]} for key, value in tags.items()
    )
