"""EC2's half of what a command shows: a refusal is a gap, and calls are counted."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from provisioner.ec2.batches import FILTER_VALUES, PAGE, ask_about, one_of, pages, whole
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.gap_rules import AWS, Gap
from provisioner.metrics import Metrics
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.errors import Ec2Error, Reason, StorageError
from provisioner.model.ids import is_instance_id
from provisioner.model.modification import Modification
from provisioner.model.volume import Instance, Volume
from provisioner.region import find_region

A = TypeVar("A")
_READ_TIMEOUT_S = 10.0
# Behind an EC2 that throttles or hangs, the rest of what is known is worth more than the wait.
_PATIENCE_S = 20.0


class Cloud:
    """What one command asks EC2. Without a Region or credentials it answers nothing.

    Attributes:
        calls: for questions that only one command has; None if EC2 cannot be asked at all.
        gaps: what could not be read, in the order in which it was found.
    """

    def __init__(self, calls: Ec2Calls | None, metrics: Metrics, gaps: Iterable[Gap] = ()) -> None:
        self.calls = calls
        self.gaps: list[Gap] = [*gaps]
        self._metrics = metrics

    @classmethod
    async def connect(cls, cluster: Cluster, region: str | None) -> Self:
        """Find the Region (see ``find_region``); nothing is asked in it yet."""
        metrics = Metrics()
        try:
            found = await find_region(cluster.client, region)
            calls = Ec2Calls.connect(region=found, metrics=metrics, read_timeout_s=_READ_TIMEOUT_S)
        except StorageError as error:
            return cls(None, metrics, [Gap.of(AWS, "EC2", error)])
        return cls(calls, metrics)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.calls is not None:
            await self.calls.close()

    @property
    def region(self) -> str:
        """The Region that is asked; "" if none is known."""
        return self.calls.region if self.calls is not None else ""

    def sent(self) -> Mapping[str, int]:
        """How many calls were sent, by action."""
        count: Counter[str] = Counter()
        for metric in self._metrics.ec2_calls.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    count[sample.labels["action"]] += int(sample.value)
        return dict(sorted(count.items()))

    async def ask(self, what: str, answer: Awaitable[A], otherwise: A) -> A:
        """An answer; ``otherwise`` and a gap named ``what`` if EC2 gives none within 20 s."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await answer
        except StorageError as error:
            self.gaps.append(Gap.of(AWS, what, error))
        except TimeoutError:
            message = f"EC2 has not answered {what} within {_PATIENCE_S:.0f} s"
            self.gaps.append(Gap(AWS, what, Reason.TIMED_OUT, message))
        return otherwise

    def misses(self, *actions: str) -> bool:
        """Whether one of these questions has no answer: then an absence proves nothing."""
        return self.calls is None or any(each.what in actions for each in self.gaps)

    async def volumes(self, ids: Iterable[str]) -> Mapping[str, Volume]:
        """Those of these volumes that exist. A call for many, without a failure for unknown ids."""
        if self.calls is None:
            return {}
        return await self._whole("DescribeVolumes", Volumes(self.calls).look_for([*ids]))

    async def modifications(self, ids: Iterable[str]) -> Mapping[str, Modification]:
        """The latest modification of each of these volumes that was ever modified."""
        if self.calls is None:
            return {}
        latest = Modifications(self.calls).latest([*ids])
        return await self._whole("DescribeVolumesModifications", latest)

    async def instances(self, ids: Iterable[str]) -> Mapping[str, Instance]:
        """Those of these instances that EC2 has, in whatever state."""
        calls = self.calls
        if calls is None:
            return {}
        found: dict[str, Instance] = {}

        async def asked() -> dict[str, Instance]:
            async def ask(some: list[str]) -> None:
                filters = [one_of("instance-id", some)]
                async for page in pages(
                    lambda params: calls.call("DescribeInstances", params),
                    {"Filters": filters, "MaxResults": PAGE},
                ):
                    found.update((each.instance_id, each) for each in page["Instances"])

            whole(await ask_about(filter(is_instance_id, ids), FILTER_VALUES, ask))
            return found

        return await self.ask("DescribeInstances", asked(), {})

    async def snapshots(self, ids: Iterable[str]) -> Mapping[str, EbsSnapshot]:
        """Those of these snapshots that EC2 has."""
        if self.calls is None:
            return {}
        return await self._whole("DescribeSnapshots", Snapshots(self.calls).look_for([*ids]))

    async def _whole(
        self, what: str, answer: Awaitable[Mapping[str, A | Ec2Error]]
    ) -> Mapping[str, A]:
        async def asked() -> Mapping[str, A]:
            return whole(await answer)

        return await self.ask(what, asked(), {})
