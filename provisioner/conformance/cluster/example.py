"""The worked example: a claim, a pod that writes, a move, growth, snapshot, restore, deletion.

A step that does not come to its end within its time is refuted with the last warning of the
objects, unless the reason is another's: an image that cannot be pulled, a pod that no node takes.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from provisioner.conformance.cluster import objects, steps
from provisioner.conformance.cluster.hand import Hand
from provisioner.conformance.cluster.kinds import (
    CLAIMS,
    CLASSES,
    CONTENTS,
    EVENTS,
    NAMESPACES,
    PODS,
    SNAPSHOT_CLASSES,
    SNAPSHOTS,
    RunPod,
    SeenClaim,
    State,
)
from provisioner.conformance.cluster.leaving import volumes_of
from provisioner.conformance.cluster.steps import Step
from provisioner.conformance.cluster.survey import Survey
from provisioner.conformance.ec2 import Ec2
from provisioner.conformance.probe import CannotRunError, Confirmed, Finding, NotRun, Refuted
from provisioner.conformance.sweep import things
from provisioner.kube.resources import Resource
from provisioner.model.errors import KubeError
from provisioner.model.meta import KubeObject
from provisioner.model.names import CLUSTER_RUN_TAG

_WEBHOOK = "ebs-webhook"
_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    KubeObject,
)
# What the API server says of a webhook that refuses, but not of one that it cannot call.
_DENIED = re.compile(r'admission webhook "[^"]*\.ebs-provisioner\.io" denied the request')
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_NO_CONTAINER = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
# In what the scheduler says where volumes are why it finds no node.
_OF_VOLUMES = ("volume", "storage")
_READER, _CHANGER, _CHECKER = "reader", "changer", "checker"
_WRITER, _GROWER = "writer", "grower"


class FailedError(Exception):
    """A step did not do what it has to; one sentence."""


Heard = Callable[[Step, Finding, float | None], Awaitable[None]]


@dataclass(slots=True)
class Example:
    """Does all steps once.

    Attributes:
        hand: in the cluster.
        seen: what was found there.
        ec2: of the same account.
        image: that has a shell.
        file_system: of the volumes.
        heard: hears of each finding as it comes, with the seconds that the step took.
    """

    hand: Hand
    seen: Survey
    ec2: Ec2
    image: str
    file_system: str
    heard: Heard
    _findings: dict[str, Finding] = field(default_factory=dict)
    _sum: str = ""

    async def run(self) -> None:
        """Do each step, or find out why it cannot be done.

        Raises:
            CannotRunError: not even the namespace can be made.
        """
        try:
            await self._enter()
        except KubeError as failure:
            raise CannotRunError(f"the cluster: {failure.message}") from failure
        work: Mapping[str, Callable[[], Awaitable[tuple[str, float]]]] = {
            steps.WEBHOOK.name: self._webhook,
            steps.PODS.name: self._pods,
            steps.WRITE.name: self._write,
            steps.MOVE.name: self._move,
            steps.GROW.name: self._grow,
            steps.SNAPSHOT.name: self._snapshot,
            steps.RESTORE.name: self._restore,
            steps.DELETE.name: self._delete,
        }
        for step in steps.STEPS:
            finding, seconds = await self._one(step, work[step.name])
            self._findings[step.name] = finding
            await self.heard(step, finding, seconds)

    async def _enter(self) -> None:
        run = self.hand.run
        await self.hand.make(NAMESPACES, objects.namespace(run))
        await self.hand.make(CLASSES, objects.storage_class(run, self.file_system))
        if self.seen.snapshots:
            await self.hand.make(SNAPSHOT_CLASSES, objects.snapshot_class(run))

    async def _one(
        self, step: Step, work: Callable[[], Awaitable[tuple[str, float]]]
    ) -> tuple[Finding, float | None]:
        if why := self.seen.why_not.get(step.name):
            return NotRun(why), None
        for name in step.needs:
            if not isinstance(self._findings[name], Confirmed):
                return NotRun(f"it needs {name}, which is not confirmed"), None
        try:
            async with asyncio.timeout(step.within_s):
                said, seconds = await work()
        except TimeoutError:
            return await self._late(step), None
        except FailedError as failure:
            return Refuted(str(failure)), None
        except CannotRunError as failure:
            return NotRun(str(failure)), None
        except KubeError as failure:
            return NotRun(f"the cluster: {failure.message}"), None
        return Confirmed(said), seconds

    # -- the steps: what was seen, and how long it took

    async def _webhook(self) -> tuple[str, float]:
        try:
            await self.hand.client.get(_WEBHOOKS, _WEBHOOK)
        except KubeError as failure:
            raise CannotRunError(f"there is no webhook to be seen: {failure.message}") from failure
        began_s = _now_s()
        try:
            await self.hand.client.create(
                CLASSES, objects.impossible_class(self.hand.run), dry_run=True
            )
        except KubeError as refused:
            if _DENIED.search(refused.message) is None:
                raise
            return refused.message, _now_s() - began_s
        raise FailedError("a class of the type gp33 was accepted (with dryRun)")

    async def _pods(self) -> tuple[str, float]:
        began_s = _now_s()
        places = {"hello-here": self.seen.here, "hello-there": self.seen.there}
        if len(self.seen.nodes) == 1:
            del places["hello-there"]
        for name, node in places.items():
            body = objects.pod(name, objects.HELLO, image=self.image, node=node)
            await self.hand.make(PODS, body)
        for name in places:
            await self._end_of(name)
        took_s = _now_s() - began_s
        for name in places:
            await self.hand.delete(PODS, name)
        return f"{self.image} runs on {' and '.join(n.name for n in self.seen.nodes)}.", took_s

    async def _write(self) -> tuple[str, float]:
        began_s = _now_s()
        await self.hand.make(CLAIMS, objects.claim(self.hand.run))
        await self._start(_WRITER, objects.WRITE, self.seen.here)
        await self._until_claim(objects.DATA, lambda claim: claim.status.phase == "Bound")
        bound_s = _now_s() - began_s
        self._sum = await self._end_of(_WRITER)
        seen = f"Bound after {bound_s:.1f} s; SHA-256 of what it wrote: {self._sum}."
        return seen, _now_s() - began_s

    async def _move(self) -> tuple[str, float]:
        began_s = _now_s()
        await self._gone(_WRITER)
        await self._start(_READER, objects.CHECK, self.seen.there)
        await self._same_as_written(_READER)
        took_s = _now_s() - began_s
        await self._gone(_READER)
        return f"{self.seen.nodes[-1].name} has read the same SHA-256.", took_s

    async def _grow(self) -> tuple[str, float]:
        await self._gone(_WRITER)
        await self._start(_GROWER, objects.GROWS, self.seen.there)
        await self._is_running(_GROWER)
        began_s = _now_s()
        request = {"resources": {"requests": {"storage": steps.GROWN}}}
        await self.hand.patch(CLAIMS, objects.DATA, {"spec": request})
        await self._same_as_written(_GROWER)
        await self._until_claim(
            objects.DATA,
            lambda claim: (claim.status.capacity or {}).get("storage") == steps.GROWN,
        )
        took_s = _now_s() - began_s
        await self._gone(_GROWER)
        return f"{self.file_system} grew from {steps.SIZE} to {steps.GROWN} under its pod.", took_s

    async def _snapshot(self) -> tuple[str, float]:
        await self._gone(_WRITER)
        began_s = _now_s()
        await self.hand.make(SNAPSHOTS, objects.snapshot(self.hand.run))

        async def ready() -> bool | None:
            found = await self.hand.get(SNAPSHOTS, objects.SNAPSHOT)
            return True if found and found.status and found.status.ready_to_use else None

        await self.hand.until(ready)
        return "It is readyToUse.", _now_s() - began_s

    async def _restore(self) -> tuple[str, float]:
        await self._start(_CHANGER, objects.CHANGE, self.seen.there)
        await self._end_of(_CHANGER)
        began_s = _now_s()
        size = await self._size_of(objects.DATA)
        body = objects.claim(self.hand.run, objects.RESTORED, of_snapshot=True, size=size)
        await self.hand.make(CLAIMS, body)
        await self._start(_CHECKER, objects.CHECK_ALL, self.seen.here, objects.RESTORED)
        checksum, _, files = (await self._end_of(_CHECKER)).partition("\n")
        if checksum != self._sum:
            raise FailedError(
                f"the SHA-256 in the restored volume is {checksum}, and was {self._sum}"
            )
        if files.split() != ["file"]:
            raise FailedError(f"the restored volume has these files: {files}")
        return "The SHA-256 is the same, and no later file is there.", _now_s() - began_s

    async def _delete(self) -> tuple[str, float]:
        if not await self._in_ec2():  # else EC2 would have nothing of them afterwards either
            raise CannotRunError(
                f"EC2 in {self.ec2.region} shows no volume with the tag {CLUSTER_RUN_TAG}="
                f"{self.hand.run}: are these credentials of the cluster's account?"
            )
        began_s = _now_s()
        for pod in await self.hand.list(PODS):
            await self.hand.delete(PODS, pod.name)
        if self.seen.snapshots:
            await self.hand.delete(SNAPSHOTS, objects.SNAPSHOT)
        for name in (objects.DATA, objects.RESTORED):
            await self.hand.delete(CLAIMS, name)

        async def all_gone() -> bool | None:
            return None if await self._remains() else True

        await self.hand.until(all_gone)
        return "Neither the API server nor EC2 has anything of them.", _now_s() - began_s

    async def _remains(self) -> bool:
        if await self.hand.list(PODS) or await volumes_of(self.hand):
            return True
        if self.seen.snapshots:
            contents = (await self.hand.client.list(CONTENTS)).items
            if any(e.spec.volume_snapshot_ref.namespace == self.hand.namespace for e in contents):
                return True
        return await self._in_ec2()

    async def _in_ec2(self) -> bool:
        return bool([each async for each in things(self.ec2, self.hand.run, CLUSTER_RUN_TAG)])

    # -- pods and claims

    async def _start(
        self, name: str, script: str, node: Mapping[str, str], claim: str = objects.DATA
    ) -> None:
        body = objects.pod(name, script, image=self.image, node=node, claim_name=claim)
        await self.hand.make(PODS, body)

    async def _end_of(self, name: str) -> str:
        """What a pod has written to its termination log.

        Raises:
            FailedError: it failed.
        """

        async def ended() -> State | None:
            found = await self.hand.get(PODS, name)
            if found is None:
                raise CannotRunError(f"somebody else has deleted the pod {name}")
            return found.state.terminated

        end = await self.hand.until(ended)
        if end.exit_code:
            raise FailedError(
                f"the pod {name} ended with exit status {end.exit_code}: "
                f"{end.message.strip() or end.reason}"
            )
        return end.message.replace("  -", "").strip()

    async def _same_as_written(self, name: str) -> None:
        found = await self._end_of(name)
        if found != self._sum:
            raise FailedError(f"the pod {name} read the SHA-256 {found}, not {self._sum}")

    async def _is_running(self, name: str) -> None:
        async def running() -> bool | None:
            found = await self.hand.get(PODS, name)
            return True if found and found.state.running is not None else None

        await self.hand.until(running)

    async def _gone(self, name: str) -> None:
        await self.hand.delete(PODS, name)

        async def gone() -> bool | None:
            return None if await self.hand.get(PODS, name) else True

        await self.hand.until(gone)

    async def _until_claim(self, name: str, so: Callable[[SeenClaim], bool]) -> None:
        async def seen() -> bool | None:
            found = await self.hand.get(CLAIMS, name)
            return True if found and so(found) else None

        await self.hand.until(seen)

    async def _size_of(self, name: str) -> str:
        found = await self.hand.get(CLAIMS, name)
        return (found.status.capacity or {}).get("storage", steps.SIZE) if found else steps.SIZE

    # -- what was not so in time

    async def _late(self, step: Step) -> Finding:
        said = f"it did not come to its end within {step.within_s:.0f} s"
        try:
            pods = await self.hand.list(PODS)
            events = await self.hand.list(EVENTS)
        except KubeError as failure:
            return NotRun(f"{said}; the cluster: {failure.message}")
        if why := _not_ours(pods, self.image):
            return NotRun(f"{said}: {why}")
        warnings = [each for each in events if each.type == "Warning"]
        if warnings:
            last = max(warnings, key=lambda each: int(each.metadata.resource_version or 0))
            said += f"; the last warning is of {last.involved_object.name}: {last.reason}: "
            said += last.message or ""
        return NotRun(said) if step.name == steps.PODS.name else Refuted(said)


def _not_ours(pods: Iterable[RunPod], image: str) -> str:
    """What keeps a pod from running that has nothing to do with volumes, "" for nothing."""
    for pod in pods:
        waiting = pod.state.waiting
        if waiting and waiting.reason in _NO_IMAGE:
            return f"{image} cannot be pulled ({waiting.message}); see --image"
        if waiting and waiting.reason in _NO_CONTAINER:
            return f"the container of the pod {pod.name} does not start: {waiting.message}"
        if pod.unscheduled and not any(word in pod.unscheduled.lower() for word in _OF_VOLUMES):
            return f"no node takes the pod {pod.name}: {pod.unscheduled}"
    return ""


def _now_s() -> float:
    return asyncio.get_running_loop().time()
