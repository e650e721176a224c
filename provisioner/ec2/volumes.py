"""Volumes in EC2: make, copy, try, delete, find, count, describe, tag; nothing is waited for."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from provisioner.ec2.batches import FILTER_VALUES, PAGE, ask_about, chunks, one_of, pages
from provisioner.ec2.calls import Ec2Calls, Gate
from provisioner.ec2.errors import unreadable
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.ids import is_volume_id
from provisioner.model.modification import Initialization
from provisioner.model.quota import InUse
from provisioner.model.volume import CreateRequest, Volume

# EC2 devguide "Pagination": up to 1,000 ids a call; aws-ebs-csi-driver sends 500.
IDS_PER_CALL = 500


class Volumes:
    """EBS volumes of one Region."""

    def __init__(self, calls: Ec2Calls, *, is_patient: bool = False) -> None:
        self._calls = calls
        self._is_patient = is_patient

    @property
    def patient(self) -> "Volumes":
        """The same volumes for who can wait: what others make goes first (see ``Limiter``)."""
        return Volumes(self._calls, is_patient=True)

    async def create(self, request: CreateRequest, *, gate: Gate | None = None) -> Volume:
        """Send one CreateVolume or CopyVolumes; the volume may still be ``creating``.

        Its tags are written by the same call. The same record sent again gives the same volume.

        Args:
            request: everything that EC2 is told.
            gate: the last look, right before the call is sent (see ``Ec2Calls.call``).

        Raises:
            Ec2Error: as in ``provisioner.ec2.errors``; ``outcome`` UNKNOWN if it may exist.
        """
        call = partial(self._calls.call, gate=gate, patient=self._is_patient)
        if request.source_volume_id is not None:
            params = copy_params(request)
            answer = await call("CopyVolumes", params)
            if len(answer["Volumes"]) != 1:
                raise unreadable("CopyVolumes", params)
            copy: Volume = answer["Volumes"][0]
            return copy
        answer = await call("CreateVolume", create_params(request))
        volume: Volume = answer["Volume"]
        return volume

    async def dry_run(self, request: CreateRequest) -> Ec2Error | None:
        """What EC2 has against a CreateVolume, which is not carried out; None: nothing.

        Raises:
            Ec2Error: EC2 did not come to look at the request.
        """
        params = {**create_params(request), "DryRun": True}
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

    async def delete(self, volume_id: str, *, gate: Gate | None = None) -> bool:
        """Send one DeleteVolume; what is not there, or no volume at all, counts as deleted.

        Returns:
            Whether it was there until now.

        Args:
            volume_id: the volume.
            gate: the last look, right before the call is sent (see ``Ec2Calls.call``).

        Raises:
            Ec2Error: VOLUME_IN_USE, PERMISSION_DENIED, …; ``outcome`` UNKNOWN if it may be gone.
        """
        if not is_volume_id(volume_id):
            return False
        try:
            await self._calls.call("DeleteVolume", {"VolumeId": volume_id}, gate=gate)
        except Ec2Error as failure:
            if failure.reason is not Reason.VOLUME_NOT_FOUND:
                raise
            return False
        return True

    async def find(
        self, *, tags: Mapping[str, str | None], background: bool = False
    ) -> list[Volume]:
        """``find_pages``, read to the last page.

        Raises:
            Ec2Error: any page failed; there is no partial answer.
        """
        found: dict[str, Volume] = {}  # a volume that changes between pages can come twice
        async for page in self.find_pages(tags=tags, background=background):
            found.update((volume.volume_id, volume) for volume in page)
        return list(found.values())

    async def find_pages(
        self, *, tags: Mapping[str, str | None], background: bool = False
    ) -> AsyncIterator[list[Volume]]:
        """All volumes that carry all of these tags, page by page.

        A new volume may be missing for some seconds (EC2 is eventually consistent).

        Args:
            tags: key and value; None stands for any value.
            background: nobody waits for it.

        Raises:
            Ec2Error: a page failed.
        """
        wanted = [
            one_of("tag-key", [key]) if value is None else one_of(f"tag:{key}", [value])
            for key, value in tags.items()
        ]
        params = {"Filters": wanted, "MaxResults": PAGE}
        async for page in self._pages(params, background=background):
            yield [volume for volume in page if _has(volume, tags)]

    async def find_any(self, key: str, values: Sequence[str]) -> list[Volume]:
        """All volumes whose tag has one of these values: 200 values a call, read to the last page.

        Raises:
            Ec2Error: any page failed; there is no partial answer.
        """
        found: dict[str, Volume] = {}
        wanted = frozenset(values)
        for some in chunks(values, FILTER_VALUES):
            params = {"Filters": [one_of(f"tag:{key}", some)], "MaxResults": PAGE}
            async for page in self._pages(params):
                found.update((v.volume_id, v) for v in page if v.tags.get(key) in wanted)
        return list(found.values())

    async def in_use(
        self, volume_type: str, see: Callable[[Sequence[Volume]], None] | None = None
    ) -> InUse:
        """What all volumes of a type in this region add up to, ours or not; in background.

        Args:
            volume_type: such as "gp3".
            see: gets each page when it comes; nothing is kept of it here but sizes.

        Raises:
            Ec2Error: any page failed; there is no partial answer.
        """
        params = {
            "Filters": [one_of("volume-type", [volume_type])],
            "MaxResults": PAGE,
        }
        found: dict[str, tuple[int, int]] = {}  # a volume can come twice, as in find
        async for page in self._pages(params, background=True):
            found.update((v.volume_id, (v.size_gib, v.iops or 0)) for v in page)
            if see is not None:
                see(page)
        return InUse(
            volumes=len(found),
            gib=sum(gib for gib, _ in found.values()),
            iops=sum(iops for _, iops in found.values()),
        )

    async def describe(
        self, volume_ids: Iterable[str], *, background: bool = False
    ) -> dict[str, Volume | Ec2Error]:
        """What EC2 knows of these volumes, at most 500 ids a call; absent: it knows no such volume.

        One that EC2 refuses to describe costs the others nothing (see ``ask_about``).

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        found: dict[str, Volume | Ec2Error] = {}

        async def ask(ids: list[str]) -> None:
            params = {"VolumeIds": ids}
            answer = await self._calls.call("DescribeVolumes", params, background=background)
            found.update((volume.volume_id, volume) for volume in answer["Volumes"])

        return found | await ask_about(filter(is_volume_id, volume_ids), IDS_PER_CALL, ask)

    async def look_for(self, volume_ids: Iterable[str]) -> dict[str, Volume | Ec2Error]:
        """As ``describe``, for volumes that may well not be there: by a filter, ≤ 200 ids a call.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        found: dict[str, Volume | Ec2Error] = {}

        async def ask(ids: list[str]) -> None:
            params = {"Filters": [one_of("volume-id", ids)], "MaxResults": PAGE}
            async for page in self._pages(params):
                found.update((volume.volume_id, volume) for volume in page)

        return found | await ask_about(filter(is_volume_id, volume_ids), FILTER_VALUES, ask)

    async def initializations(
        self, volume_ids: Iterable[str]
    ) -> dict[str, Initialization | Ec2Error]:
        """How far these volumes have come to hold what they were made of; absent: EC2 has no such.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        found: dict[str, Initialization | Ec2Error] = {}

        async def ask(ids: list[str]) -> None:
            params = {"VolumeIds": ids}
            answer = await self._calls.call("DescribeVolumeStatus", params)
            found.update((each.volume_id, each) for each in answer["Initializations"])

        return found | await ask_about(filter(is_volume_id, volume_ids), IDS_PER_CALL, ask)

    async def tag(self, volume_ids: Iterable[str], tags: Mapping[str, str]) -> dict[str, Ec2Error]:
        """Write tags on many volumes; the same again is harmless.

        Returns:
            Why, for each volume that may not be tagged; those that are gone do not matter.

        Raises:
            Ec2Error: EC2 gave no answer, or denies the call for any volume.
        """
        written = [{"Key": key, "Value": value} for key, value in tags.items()]

        async def ask(ids: list[str]) -> None:
            params = {"Resources": ids, "Tags": written}
            await self._calls.call("CreateTags", params, background=True)

        return await ask_about(filter(is_volume_id, volume_ids), IDS_PER_CALL, ask)

    async def untag(self, volume_ids: Iterable[str], key: str) -> dict[str, Ec2Error]:
        """Remove a tag with any value from many volumes; it is idempotent.

        Returns:
            Why, for each volume that may not be untagged; those that are gone do not matter.

        Raises:
            Ec2Error: EC2 gave no answer, or denies the call for any volume.
        """

        async def ask(ids: list[str]) -> None:
            await self._calls.call("DeleteTags", {"Resources": ids, "Tags": [{"Key": key}]})

        return await ask_about(filter(is_volume_id, volume_ids), IDS_PER_CALL, ask)

    async def _pages(
        self, params: Mapping[str, Any], *, background: bool = False
    ) -> AsyncIterator[list[Volume]]:
        async for answer in pages(
            lambda page: self._calls.call("DescribeVolumes", page, background=background), params
        ):
            yield answer["Volumes"]


def _has(volume: Volume, tags: Mapping[str, str | None]) -> bool:
    """Whether the volume really has the tags, letter for letter: filters know wildcards."""
    return all(
        key in volume.tags and value in {None, volume.tags[key]} for key, value in tags.items()
    )


def create_params(request: CreateRequest) -> dict[str, Any]:
    """For CreateVolume: an empty volume, or one made of a snapshot."""
    params = _of_both(request) | {"AvailabilityZone": request.zone}
    if request.initialization_rate_mibps is not None:
        params["VolumeInitializationRate"] = request.initialization_rate_mibps
    if request.outpost_arn is not None:
        params["OutpostArn"] = request.outpost_arn
    if request.snapshot_id is not None:
        params["SnapshotId"] = request.snapshot_id
    return params


def copy_params(request: CreateRequest) -> dict[str, Any]:
    """For CopyVolumes: the zone, and the Outpost if any, are the source's."""
    return _of_both(request) | {"SourceVolumeId": request.source_volume_id}


def _of_both(request: CreateRequest) -> dict[str, Any]:
    params: dict[str, Any] = {
        "ClientToken": request.client_token,
        "Size": request.size_gib,
        "VolumeType": request.volume_type,
    }
    if request.tags:
        tags = [{"Key": key, "Value": value} for key, value in request.tags]
        params["TagSpecifications"] = [{"ResourceType": "volume", "Tags": tags}]
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
    return params
