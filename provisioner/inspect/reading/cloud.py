"""EC2's half of what a command shows: a refusal is a gap, and calls are counted."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from provisioner.ec2.batches import FILTER_VALUES, PAGE, chunks, one_of, pages, whole
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.inspect.reading.aws import Aws
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
_DEFAULT_KEY = "GetEbsDefaultKmsKeyId"
_BY_DEFAULT = "GetEbsEncryptionByDefault"
_READ_TIMEOUT_S = 10.0
# Behind an EC2 that throttles or hangs, the rest of what is known is worth more than the wait.
_PATIENCE_S = 20.0
# A call with 200 ids takes EC2 some tenths of a second, and 10,000 volumes are 50 of them. AWS lets
# an account look 20 times a second without end (EC2 API reference, throttling, read 2026-11-21).
_AT_ONCE = 8


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
        self._sent_beside: Counter[str] = Counter()

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
        count = self._sent_beside.copy()
        for labels, value in self._outcomes():
            count[labels["action"]] += value
        return dict(sorted(count.items()))

    def _answered(self) -> int:
        return sum(value for labels, value in self._outcomes() if labels["outcome"] == "ok")

    def _outcomes(self) -> Iterator[tuple[Mapping[str, str], int]]:
        """How many calls had each outcome."""
        for metric in self._metrics.ec2_calls.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    yield sample.labels, int(sample.value)

    async def ask(self, what: str, answer: Awaitable[A], otherwise: A) -> A:
        """An answer; ``otherwise`` and a gap named ``what`` if EC2 is silent for 20 s."""
        try:
            return await self._patiently(answer)
        except StorageError as error:
            self.gaps.append(Gap.of(AWS, what, error))
        except TimeoutError:
            message = f"EC2 has not answered {what} within {_PATIENCE_S:.0f} s"
            self.gaps.append(Gap(AWS, what, Reason.TIMED_OUT, message))
        return otherwise

    async def _patiently(self, answer: Awaitable[A]) -> A:
        """An answer for which many calls may be needed, as long as EC2 answers some of them.

        Raises:
            TimeoutError: for so long it has answered none, of this or of another question.
        """
        task = asyncio.ensure_future(answer)
        try:
            while True:
                before = self._answered()
                await asyncio.wait([task], timeout=_PATIENCE_S)
                if task.done():
                    return task.result()
                if self._answered() == before:
                    raise TimeoutError
        finally:
            task.cancel()

    def misses(self, *actions: str) -> bool:
        """Whether one of these questions has no answer: then an absence proves nothing."""
        return self.calls is None or any(each.what in actions for each in self.gaps)

    async def volumes(self, ids: Iterable[str]) -> Mapping[str, Volume]:
        """Those of these volumes that exist. A call for many, without a failure for unknown ids."""
        if self.calls is None:
            return {}
        return await self._in_parts("DescribeVolumes", ids, Volumes(self.calls).look_for)

    async def modifications(self, ids: Iterable[str]) -> Mapping[str, Modification]:
        """The latest modification of each of these volumes that was ever modified."""
        if self.calls is None:
            return {}
        latest = Modifications(self.calls).latest
        return await self._in_parts("DescribeVolumesModifications", ids, latest)

    async def instances(self, ids: Iterable[str]) -> Mapping[str, Instance]:
        """Those of these instances that EC2 has, in whatever state."""
        calls = self.calls
        if calls is None:
            return {}

        async def look_for(some: list[str]) -> dict[str, Instance | Ec2Error]:
            params = {"Filters": [one_of("instance-id", some)], "MaxResults": PAGE}
            asked = pages(lambda params: calls.call("DescribeInstances", params), params)
            return {each.instance_id: each async for page in asked for each in page["Instances"]}

        wanted = filter(is_instance_id, ids)
        return await self._in_parts("DescribeInstances", wanted, look_for)

    async def snapshots(self, ids: Iterable[str]) -> Mapping[str, EbsSnapshot]:
        """Those of these snapshots that EC2 has."""
        if self.calls is None:
            return {}
        return await self._in_parts("DescribeSnapshots", ids, Snapshots(self.calls).look_for)

    async def default_key(self) -> str:
        """The KMS key of encrypted volumes for which nobody names one; "" if EC2 does not tell."""
        if self.calls is None:
            return ""
        answer = await self.ask(_DEFAULT_KEY, self._beside(_DEFAULT_KEY), {})
        return str(answer.get("KmsKeyId", ""))

    async def encrypts_by_default(self) -> bool | None:
        """Whether volumes are encrypted for which nobody asks for it; None if EC2 does not tell."""
        if self.calls is None:
            return None
        answer = await self.ask(_BY_DEFAULT, self._beside(_BY_DEFAULT), {})
        told = answer.get("EbsEncryptionByDefault")
        return None if told is None else bool(told)

    async def _beside(self, action: str) -> Mapping[str, Any]:
        """A call that the product's own client does not know.

        Raises:
            Ec2Error: refused, or not answered.
        """
        aws = await asyncio.to_thread(Aws.of_caller, self.region)
        try:
            return await aws.call("ec2", action)
        finally:
            self._sent_beside.update(aws.sent)
            aws.close()

    async def _in_parts(
        self,
        what: str,
        ids: Iterable[str],
        ask: Callable[[list[str]], Awaitable[Mapping[str, A | Ec2Error]]],
    ) -> Mapping[str, A]:
        """The answers about these ids: 200 a call, some calls at once; all of them or none."""
        turns, found = asyncio.Semaphore(_AT_ONCE), dict[str, A]()

        async def part(some: list[str]) -> None:
            async with turns:
                found.update(whole(await ask(some)))

        async def asked() -> Mapping[str, A]:
            try:
                async with asyncio.TaskGroup() as parts:
                    for some in chunks(ids, FILTER_VALUES):
                        parts.create_task(part(some))
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from failures
            return found

        return await self.ask(what, asked(), {})
