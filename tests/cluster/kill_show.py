"""A controller that is killed again and again, and what is left of its work.

``python -m tests.cluster.kill_show [SEED]`` runs both stories in a sandbox of their own and prints
what they came to; ``test_kill.py`` holds the same to the issue's numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field

from provisioner.model.names import CLAIM_NAME, VOLUME_NAME
from provisioner.sandbox.api import Api
from provisioner.sandbox.up import Sandbox
from tests.cluster import epochs, hands
from tests.cluster.hands import Ec2Hand
from tests.cluster.replicas import START_S, Replica, eventually

WORKS_AT_MOST_S = 3.5
"""With its start (1.3 s on idle cores) it is killed every 3 s."""

PATIENCE_S = 240.0  # two cores shared with others: starting it then takes 5 s instead of 1
REAL = {"latency": "real", "throttle": "x20"}
VISIBLE_AFTER_S = 1.0
_CREATES_BEFORE_THE_END = 25


@dataclass
class Report:
    """What a story came to."""

    claims: int
    kills: int = 0
    ever_bound: set[str] = field(default_factory=set)
    bound_after_s: float = 0.0
    took_s: float = 0.0
    volumes_by_name: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    tokens_by_name: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    creates: int = 0
    left: list[str] = field(default_factory=list)
    retained: list[hands.Json] = field(default_factory=list)

    @property
    def duplicates(self) -> list[str]:
        """Names under which EC2 was seen to have two volumes, or carried out two requests."""
        return sorted(
            name
            for seen in (self.volumes_by_name, self.tokens_by_name)
            for name, several in seen.items()
            if len(several) > 1
        )

    def __str__(self) -> str:
        return (
            f"{self.claims} claims, {len(self.ever_bound)} were Bound"
            f" (all after {self.bound_after_s:.1f} s), controller killed {self.kills} times in"
            f" {self.took_s:.1f} s; {len(self.volumes_by_name)} volumes made by {self.creates}"
            f" CreateVolume calls, {len(self.duplicates)} duplicates,"
            f" {len(self.left)} volumes left, {len(self.retained)} retained"
        )


class KillStory:
    """One namespace, one cluster id, one controller that does not live long."""

    def __init__(self, sandbox: Sandbox, api: Api, namespace: str, seed: int) -> None:
        self.sandbox = sandbox
        self.api = api
        self.namespace = namespace
        self.cluster_id = namespace
        self.random = random.Random(seed)
        self.hand = Ec2Hand(sandbox.ec2_endpoint)
        self.controller = Replica(
            sandbox,
            *("--cluster-id", self.cluster_id, "--no-leader-elect"),
            *("--orphan-min-age", "2s", "--orphan-sweep-interval", "1s"),
            name=f"killed-{namespace}",
        )
        self.report = Report(0)

    async def claims_with_pods(self, immediate: int, waiting: int) -> Report:
        """All become Bound while the controller is killed; then all is deleted, likewise."""
        await epochs.of_ours(self.api)
        report = self.report = Report(immediate + waiting)
        began = time.monotonic()
        async with self._watched(), self._killing():
            await self._create("now", immediate)
            await self._create("later", waiting, pods=True)

            async def all_bound() -> bool:
                report.ever_bound |= await hands.bound(self.api, self.namespace)
                return len(report.ever_bound) == report.claims

            await self._told(eventually("all claims are Bound", all_bound, PATIENCE_S))
            report.bound_after_s = time.monotonic() - began
            await hands.discard(self.api, hands.pods_of(self.namespace))
            await hands.discard(self.api, hands.claims_of(self.namespace))
            await self._told(eventually("nothing is left", self._nothing_left, PATIENCE_S))
        report.took_s = time.monotonic() - began
        return report

    async def claims_that_nobody_saw_go(self, deleted: int, retained: int) -> Report:
        """Claims go while the controller lies dead and EC2 makes their volumes."""
        await epochs.of_ours(self.api)
        report = self.report = Report(deleted + retained)
        began = time.monotonic()
        async with self._watched():
            await self._create("now", deleted)
            await self._create("kept", retained)
            self.controller.begin()
            await eventually("volumes are being made", self._many_are_made, START_S)
            await self._kill()
            await hands.discard(self.api, hands.claims_of(self.namespace))

            async def gone() -> bool:
                return not await hands.items(self.api, hands.claims_of(self.namespace))

            await eventually("the claims are gone", gone)
            made = await eventually("EC2 shows what it has made", self._all_made)
            kept = {name for name, claim in made.items() if claim.startswith("kept-")}
            async with self._killing():
                left = functools.partial(self._only_left, kept)
                await eventually("only what is retained is left", left, PATIENCE_S)
        report.retained = await hands.persistent_volumes(self.api, self.namespace)
        report.took_s = time.monotonic() - began
        return report

    async def clean_up(self) -> None:
        """Remove what a retained class leaves behind."""
        await self.controller.kill()
        await hands.wipe(self.api, self.hand, self.namespace)
        for name in ("now", "later", "kept"):
            await hands.discard(self.api, f"{hands.CLASSES}/{self._class(name)}")

    # -- what is done

    def _class(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    async def _create(self, kind: str, count: int, *, pods: bool = False) -> None:
        policy = "Retain" if kind == "kept" else "Delete"
        await hands.make_class(self.api, self._class(kind), policy=policy, immediate=not pods)
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                name = f"{kind}-{number}"
                make = hands.make_claim(self.api, self.namespace, name, self._class(kind))
                group.create_task(make)
                if pods:
                    group.create_task(hands.make_pod(self.api, self.namespace, name, name))

    @contextlib.asynccontextmanager
    async def _killing(self) -> AsyncIterator[None]:
        """Run the controller, kill it every three seconds or so at a random moment, start it at once."""
        task = asyncio.create_task(self._live_and_die(), name="killer")
        try:
            yield
        finally:
            task.cancel()
            [end] = await asyncio.gather(task, return_exceptions=True)
            await self.controller.kill()
            assert isinstance(end, asyncio.CancelledError), f"nobody starts it any more: {end!r}"

    async def _live_and_die(self) -> None:
        while True:
            self.controller.begin()
            # From then on, or a machine too busy to start it in time would let it do nothing.
            await eventually("it works", self.controller.leads, START_S)
            await asyncio.sleep(self.random.uniform(0.1, WORKS_AT_MOST_S))
            assert self.controller.code is None, self.controller.log[-3000:]
            await self._kill()

    async def _kill(self) -> None:
        await self.controller.kill()
        self.report.kills += 1

    # -- what is seen

    @contextlib.asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Note each volume of this cluster that EC2 ever shows, and each CreateVolume."""
        self.hand.watch(**REAL)
        self.hand.control(delays={"visible_after_s": VISIBLE_AFTER_S})
        task = asyncio.create_task(self._look(), name="looks at EC2")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            log = await asyncio.to_thread(self.hand.changes, "CreateVolume")
            self.hand.control(**hands.CALM)
            self._count(log)
            self.report.left = sorted(self.hand.of_cluster(self.cluster_id))

    async def _told(self, look: Awaitable[object]) -> None:
        """Wait; a failure says how far it is, and what the controller said last."""
        try:
            await look
        except AssertionError as error:
            claims = await hands.items(self.api, hands.claims_of(self.namespace))
            stuck = [each for each in claims if each["status"].get("phase") != "Bound"]
            log = self.controller.log[-6000:]
            raise AssertionError(f"{error}\n{self.report}\n{stuck[:3]}\n{log}") from error

    async def _look(self) -> None:
        while True:
            for volume_id, volume in (await self._volumes()).items():
                name = hands.tags_of(volume)[VOLUME_NAME]
                self.report.volumes_by_name[name].add(volume_id)
            await asyncio.sleep(0.3)

    def _count(self, log: list[hands.Json]) -> None:
        """Requests that were carried out; equal ones (token and zone) made no second volume."""
        for call in log:
            if call["outcome"] != "ok":
                continue
            self.report.creates += 1
            given = call["params"]
            request = f"{given['ClientToken']} {given['AvailabilityZone']}"
            self.report.tokens_by_name[_name_of(given)].add(request)

    async def _volumes(self) -> dict[str, hands.Json]:
        return await asyncio.to_thread(self.hand.of_cluster, self.cluster_id)

    async def _many_are_made(self) -> bool:
        calls = await asyncio.to_thread(self.hand.changes, "CreateVolume")
        done = [call for call in calls if call["outcome"] == "ok"]
        return len(done) >= _CREATES_BEFORE_THE_END

    async def _nothing_left(self) -> bool:
        left = await hands.persistent_volumes(self.api, self.namespace)
        return not left and not await self._volumes()

    async def _all_made(self) -> dict[str, str] | None:
        """The volumes' names and claims, once EC2 shows one for each call that it got."""
        calls = await asyncio.to_thread(self.hand.changes, "CreateVolume")
        owners = [hands.tags_of(volume) for volume in (await self._volumes()).values()]
        made = {owner[VOLUME_NAME]: owner[CLAIM_NAME] for owner in owners}
        done = all(call["outcome"] == "ok" for call in calls)
        return made if done and set(made) == {_name_of(c["params"]) for c in calls} else None

    async def _only_left(self, names: set[str]) -> bool:
        """Whether EC2 and the API server hold these and no others, Retain and Released."""
        found = await hands.persistent_volumes(self.api, self.namespace)
        settled = {
            each["metadata"]["name"]
            for each in found
            if each["status"].get("phase") == "Released"
            and each["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        }
        there = {hands.tags_of(v)[VOLUME_NAME] for v in (await self._volumes()).values()}
        return len(found) == len(names) and settled == there == names


def _name_of(params: hands.Json) -> str:
    """The CSIVolumeName in CreateVolume's flattened parameters."""
    for key, value in params.items():
        if key.endswith(".Key") and value == VOLUME_NAME:
            return str(params[f"{key.removesuffix('.Key')}.Value"])
    return "unnamed"


async def show(seed: int) -> bool:
    """Tell both stories in a sandbox of their own; true if both ended well."""
    well = True
    print(f"seed {seed}")  # noqa: T201 -- a terminal program
    async with Sandbox.start(controller=False) as sandbox:
        await sandbox.install_controller()
        for name in ("kill-bound", "kill-gone"):
            await sandbox.plane.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
            await eventually("pods are taken", functools.partial(_takes_pods, sandbox, name))
            story = KillStory(sandbox, sandbox.plane.api, name, seed)
            if name == "kill-bound":
                report = await story.claims_with_pods(50, 50)
                well &= len(report.ever_bound) == report.claims and not report.left
            else:
                report = await story.claims_that_nobody_saw_go(80, 20)
                well &= len(report.left) == len(report.retained)
            well &= not report.duplicates
            print(f"{name}: {report}")  # noqa: T201
    return well


async def _takes_pods(sandbox: Sandbox, namespace: str) -> bool:
    accounts = await hands.items(
        sandbox.plane.api, f"/api/v1/namespaces/{namespace}/serviceaccounts"
    )
    return bool(accounts)


if __name__ == "__main__":
    given = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(10**6)
    sys.exit(0 if asyncio.run(show(given)) else 1)
