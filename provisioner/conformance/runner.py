"""One run: rehearse, probe, sweep. Whatever happens on the way, the sweep comes."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle

from provisioner.conformance.cluster.part import Part
from provisioner.conformance.ec2 import DeniedError, Ec2, NoEc2Error
from provisioner.conformance.journal import Journal
from provisioner.conformance.lab import Lab, Place
from provisioner.conformance.plan import AT_ONCE, REHEARSAL
from provisioner.conformance.probe import CannotRunError, Finding, NotRun, Probe, RefusedError
from provisioner.conformance.rehearsal import needs_of, rehearse
from provisioner.conformance.rule import Rule
from provisioner.conformance.sweep import Left, Patience, delete_these, sweep

_CLEAN_UP_S = 60.0


@dataclass(slots=True)
class Result:
    """What came of a run.

    Attributes:
        findings: of each rule whose probe was to run, in the order in which they came.
        left: what could not be deleted.
        stopped: why the run ended before its last probe, "" if it did not.
    """

    findings: dict[str, Finding] = field(default_factory=dict)
    left: Left = field(default_factory=Left)
    stopped: str = ""


class Runner:
    """Runs the probes of some rules in one place."""

    def __init__(
        self,
        ec2: Ec2,
        place: Place,
        journal: Journal,
        patience: Patience,
        *,
        tell: Callable[[Rule, Finding], None] = lambda _, __: None,
        part: Part | None = None,
    ) -> None:
        """``tell`` hears of each finding as it comes; ``part`` takes place in a cluster."""
        self._ec2 = ec2
        self._place = place
        self._journal = journal
        self._patience = patience
        self._tell = tell
        self._part = part
        self._denied: set[str] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._devices = cycle(place.devices)
        self._result = Result()

    async def run(self, rules: Sequence[Rule]) -> Result:
        """Do the steps in the cluster, run all probes, and delete what was made.

        All that is deleted when this is cancelled, too.

        Raises:
            CannotRunError: EC2 does not list what may be left.
        """
        try:
            await self._probe(rules)
        except asyncio.CancelledError:
            self._result.stopped = "it was interrupted"
        except CannotRunError as failure:
            self._result.stopped = str(failure)
        finally:
            await self._end()
        for rule in rules:
            if rule.name not in self._result.findings:
                why = NotRun(f"the run ended before: {self._result.stopped}")
                self._result.findings[rule.name] = why
        return self._result

    async def _probe(self, rules: Sequence[Rule]) -> None:
        await self._journal.started(REHEARSAL)
        self._denied |= await rehearse(self._ec2, self._lab(), needs_of(rules))
        if self._part is not None:  # first, since some probes use up the quota of the account
            await self._part.run()
            await self._part.leave()
        async with asyncio.TaskGroup() as group:
            for rule in rules:
                if isinstance(rule.probe, Probe) and not rule.probe.alone:
                    group.create_task(self._in_turn(rule, rule.probe))
        for rule in rules:
            if isinstance(rule.probe, Probe) and rule.probe.alone:
                await self._one(rule, rule.probe)

    async def _in_turn(self, rule: Rule, probe: Probe) -> None:
        async with self._turns:
            await self._one(rule, probe)

    async def _one(self, rule: Rule, probe: Probe) -> None:
        """Run one probe. If this is cancelled, what it has made is left to the sweep."""
        if self._result.stopped:
            return
        lab = self._lab()
        if missing := self._denied & set(probe.actions):
            finding: Finding = NotRun(f"ec2:{min(missing)} is not allowed to these credentials")
        else:
            await self._journal.started(rule.name)
            finding = await self._found(probe, lab)
        await self._journal.found(rule.name, finding)
        self._result.findings[rule.name] = finding
        self._tell(rule, finding)
        await self._clean_up(lab)

    async def _found(self, probe: Probe, lab: Lab) -> Finding:
        try:
            async with asyncio.timeout(probe.deadline_s):
                return await probe.run(lab)
        except TimeoutError:
            return NotRun(f"it took longer than {probe.deadline_s:.0f} s")
        except DeniedError as denied:
            self._denied.add(denied.action)
            return NotRun(str(denied))
        except NoEc2Error as failure:
            self._result.stopped = str(failure)
            return NotRun(str(failure))
        except CannotRunError as failure:
            return NotRun(str(failure))
        except RefusedError as refused:
            return NotRun(f"EC2 refused what the probe prepares: {refused}")
        except Exception as mistake:
            return NotRun(f"a mistake of the probe: {type(mistake).__name__}: {mistake}")

    async def _clean_up(self, lab: Lab) -> None:
        """Delete what a probe has made; what does not go is left to the sweep."""
        with suppress(CannotRunError):
            await delete_these(self._ec2, self._place.run, lab.made, _CLEAN_UP_S)

    async def _end(self) -> None:
        """Delete everything; calls of probes that were cancelled have to end first."""
        await self._ec2.settle()
        in_cluster = await self._part.leave() if self._part is not None else Left()
        swept = await sweep(self._ec2, self._journal.story, self._patience)
        self._result.left = Left(in_cluster.why | swept.why)
        if not self._result.left.why:
            await self._journal.swept()

    def _lab(self) -> Lab:
        return Lab(self._place, self._ec2, self._journal, lambda: next(self._devices))
