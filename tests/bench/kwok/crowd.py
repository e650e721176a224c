"""Users, workload controllers, kubelets and whoever replaces nodes: what comes and goes.

The control plane is real and KWOK plays the kubelets' part of a pod's status. What KWOK does not do
is done here: a node says which volumes are in use, because until it no longer does, the
attach/detach controller must not detach them.
"""

import asyncio
import random
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import boto3
from botocore.config import Config

from provisioner.sandbox import nodes
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from provisioner.sandbox.strict_ec2.instances import make_instances
from tests.bench import standing
from tests.bench.kwok import life_rules, standing_pods
from tests.bench.kwok.ec2 import REGION, Wanted
from tests.bench.kwok.life_rules import LATE_ON_DEAD_NODE_S, LATE_S, Life, Step, Wait
from tests.bench.kwok.mirror import Mirror, Thing
from tests.bench.standing import ZONES
from tests.bench.world import World

ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
_LOOK_S = 0.25
_RETRY_S = 1.0
_PATIENCE_S = 300.0
_HASTY = 0.05  # of new claims: deleted while their volume is made
_NO_POD = 0.4  # of new claims: the pod goes when it has run
_DEAD_EVERY = 10  # replaced nodes: the instance ends as it is
_CLOUD_LOOKS_S = 10.0  # until somebody deletes the Node of an instance that has ended
_GONE, _THERE = 404, 409
_BUSY = 429


@dataclass(eq=False, slots=True)
class Node:
    """A node, its instance, and what is mounted on it."""

    number: int
    instance_id: str
    is_cordoned: bool = False
    is_dead: bool = False
    in_use: set[str] = field(default_factory=set)
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        """Of the Node."""
        return standing.node_name(self.number)


class Crowd:
    """Everybody.

    Attributes:
        lives: that have not ended, by the UID of their claim.
        nodes: by name.
        took_s: how long each wait took.
        errors: what came to no end.
    """

    def __init__(self, made: World, wanted: Wanted, minutes: float, classes: int) -> None:
        self._made, self._minutes, self._classes = made, minutes, classes
        self.lives: dict[str, Life] = {}
        self.nodes: dict[str, Node] = {}
        self.took_s: defaultdict[str, list[float]] = defaultdict(list)
        self.errors: list[str] = []
        self.ended = self.replaced = self.restarted = 0
        self._next, self._replacing = wanted.volumes, 0
        self._choice = random.Random(11)
        self._fresh: list[Life] = []  # not yet created, so without a UID
        self._settled: deque[Life] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        hands = made.hands
        self.claims = Mirror(hands, "/api/v1/persistentvolumeclaims")
        self.volumes = Mirror(hands, "/api/v1/persistentvolumes")
        self.pods = Mirror(hands, "/api/v1/pods")
        self.attachments = Mirror(hands, ATTACHMENTS, _volume_of)
        for n, instance_id in enumerate(wanted.instances):
            held = range(n, wanted.attachments, len(wanted.instances))
            in_use = {standing_pods.handle(each) for each in held}
            self.nodes[standing.node_name(n)] = Node(n, instance_id, in_use=in_use)
        for n in range(wanted.volumes):
            self._settle(self._standing(n, wanted))

    def _standing(self, n: int, wanted: Wanted) -> Life:
        body = standing.claim(n, len(wanted.instances))["metadata"]
        life = Life(n, f"{body['namespace']}/{body['name']}", body["uid"])
        life.wants_pod = n < wanted.attachments
        if life.wants_pod:
            life.node = standing.node_name(n % len(wanted.instances))
            life.volume_id = standing.volume_id(n)
        self.lives[life.uid] = life
        return life

    # Time -----------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Watch and act, until this is cancelled."""
        kinds = (self.claims, self.volumes, self.pods, self.attachments)
        async with asyncio.TaskGroup() as tasks:
            for each in kinds:
                tasks.create_task(each.run())
            for each in kinds:
                await each.filled()
            tasks.create_task(self._move_on())

    async def come_and_go(self) -> None:
        """New claims, deletions, restarts of pods and replacements of nodes, until cancelled."""
        rate = life_rules.share_of(len(self.lives), self._minutes)
        node_s = life_rules.nodes_each_s(len(self.nodes), self._minutes)
        async with asyncio.TaskGroup() as tasks:
            for mean_s, act in (
                (1 / rate, self._create),
                (1 / rate, self._end_any),
                (1 / rate, self._restart_any),
                (node_s, self._replace_any),
            ):
                tasks.create_task(self._again_and_again(mean_s, act))

    async def _again_and_again(self, mean_s: float, act: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self._choice.expovariate(1 / mean_s))
            act()

    async def _move_on(self) -> None:
        while True:
            began_s = time.monotonic()
            for life in [each for each in self.lives.values() if each.waits_for]:
                if not life.is_busy:
                    self._step(life)
            await asyncio.sleep(max(0.05, began_s + _LOOK_S - time.monotonic()))

    def late(self) -> int:
        """How many wait for too long."""
        now_s = time.monotonic()
        return sum(each.is_late(now_s) for each in [*self.lives.values(), *self._fresh])

    def waiting(self) -> list[Life]:
        """All that wait for something."""
        return [each for each in [*self.lives.values(), *self._fresh] if each.waits_for]

    @property
    def is_busy(self) -> bool:
        """Whether somebody acts, or waits for a node to be empty."""
        return bool(self._tasks)

    async def leave(self) -> None:
        """End what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # One life -------------------------------------------------------------------------------------

    def _step(self, life: Life) -> None:
        claim = self.claims.things.get(life.key)
        if claim is not None and claim.metadata.uid != life.uid:
            claim = None
        volume = f"pvc-{life.uid}"
        step = life_rules.next_step(
            life,
            claim,
            self.pods.things.get(self._pod_key(life)),
            self.attachments.of_group(volume),
            has_volume=volume in self.volumes.things,
        )
        match step:
            case Step.AWAIT_ATTACHMENT:
                self._got(life, Wait.ATTACHED)
            case Step.SAY_MOUNTED:
                self._do(life, self._say_mounted(life))
            case Step.CREATE_POD:
                self._do(life, self._create_pod(life))
            case Step.REMOVE_POD:
                self._do(life, self._remove_pod(life))
            case Step.REST:
                self._got(life)
                self._settle(life)
            case Step.END:
                self._got(life)
                del self.lives[life.uid]
                self.ended += 1

    def _do(self, life: Life, act: Awaitable[None]) -> None:
        async def done() -> None:
            try:
                await act
            except (ApiError, TimeoutError) as problem:
                self.errors.append(f"{life.key}: {problem}")
            finally:
                life.is_busy = False

        life.is_busy = True
        self._spawn(done())

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wait(self, life: Life, waits_for: Wait, may_take_s: float = LATE_S) -> None:
        life.waits_for, life.since_s, life.may_take_s = waits_for, time.monotonic(), may_take_s

    def _got(self, life: Life, then: Wait = Wait.NOTHING) -> None:
        self.took_s[life.waits_for].append(time.monotonic() - life.since_s)
        self._wait(life, then)

    def _settle(self, life: Life) -> None:
        if not life.is_deleting:
            self._settled.append(life)

    def _pod_key(self, life: Life) -> str:
        return f"{life.key.partition('/')[0]}/{standing_pods.pod_name(life.number)}"

    def _create(self) -> None:
        n, self._next = self._next, self._next + 1
        life = Life(n, f"{standing.team(n)}/{standing.claim_name(n)}")
        life.wants_pod = self._choice.random() > _NO_POD
        self._wait(life, Wait.BOUND)
        self._fresh.append(life)
        self._do(life, self._created(life))

    async def _created(self, life: Life) -> None:
        namespace = standing.team(life.number)
        body = standing.claim(life.number, 1)
        meta = {key: body["metadata"][key] for key in ("name", "namespace", "labels")}
        spec = {key: value for key, value in body["spec"].items() if key != "volumeName"}
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
        spec["storageClassName"] = standing_pods.class_name(life.number, self._classes)
        await self._send("POST", path, {**claim, "spec": spec})
        found = await self._send("GET", f"{path}/{meta['name']}")
        life.uid = found["metadata"]["uid"]
        await self._create_pod(life, Wait.BOUND)
        self._fresh.remove(life)
        self.lives[life.uid] = life
        if self._choice.random() < _HASTY:
            self._spawn(self._end_soon(life, self._choice.uniform(0.1, 4.0)))

    async def _create_pod(self, life: Life, then: Wait = Wait.ATTACHED) -> None:
        namespace = standing.team(life.number)
        body = standing_pods.pod(life.number, namespace)
        await self._send("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        if life.waits_for is Wait.DETACHED:
            self._got(life, then)

    async def _say_mounted(self, life: Life) -> None:
        pod = self.pods.things.get(self._pod_key(life))
        volume = self.volumes.things.get(f"pvc-{life.uid}")
        if pod is None or volume is None:
            return
        life.node, life.volume_id = pod.spec.node_name, volume.spec.csi.volume_handle
        node = self.nodes.get(life.node)
        if node is not None:
            node.in_use.add(standing_pods.unique_name(life.volume_id))
            await self._say_in_use(node)
        if life.waits_for is not Wait.ATTACHED:
            return  # somebody deletes it
        self._got(life)
        if life.wants_pod:
            self._settle(life)
        else:
            self._wait(life, Wait.DETACHED)

    async def _remove_pod(self, life: Life) -> None:
        """The pod is deleted; KWOK ends it, and the kubelet unmounts its volume."""
        namespace, name = self._pod_key(life).split("/")
        await self._send("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
        node = self.nodes.get(life.node)
        life.node = ""
        if node is not None:
            node.in_use.discard(standing_pods.unique_name(life.volume_id))
            if not node.is_dead:
                await self._say_in_use(node)

    async def _say_in_use(self, node: Node) -> None:
        async with node.telling:  # of two lists on their way, the older one could come last
            body = {"status": {"volumesInUse": sorted(node.in_use)}}
            await self._send("PATCH", f"/api/v1/nodes/{node.name}/status", body)

    # Users ----------------------------------------------------------------------------------------

    def _any(self, *, with_pod: bool) -> Life | None:
        for _ in range(min(len(self._settled), 50)):
            self._settled.rotate(self._choice.randrange(len(self._settled)))
            life = self._settled.popleft()
            if life.waits_for or life.is_deleting:
                continue  # it is put back when it has settled again
            if life.wants_pod or not with_pod:
                return life
            self._settled.append(life)
        return None

    def _end_any(self) -> None:
        life = self._any(with_pod=False)
        if life is not None:
            self._do(life, self._end(life))

    async def _end_soon(self, life: Life, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not life.is_deleting:
            with suppress(ApiError, TimeoutError):
                await self._end(life)

    async def _end(self, life: Life) -> None:
        """Pod and claim are deleted; the claim stays until the pod is gone."""
        life.is_deleting, life.wants_pod = True, False
        self._wait(life, Wait.GONE)
        await self._remove_pod(life)
        namespace, name = life.key.split("/")
        await self._send("DELETE", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")

    def _restart_any(self) -> None:
        life = self._any(with_pod=True)
        if life is not None:
            self.restarted += 1
            self._wait(life, Wait.DETACHED)

    # Nodes ----------------------------------------------------------------------------------------

    def _replace_any(self) -> None:
        node = next((each for each in self.nodes.values() if not each.is_cordoned), None)
        if node is not None:
            node.is_cordoned = True
            node.is_dead = self._replacing % _DEAD_EVERY == 2
            self._replacing += 1
            self._spawn(self._replace(node))

    async def _replace(self, node: Node) -> None:
        try:
            await self._launch(node)
            await self._send("PATCH", _path(node), {"spec": {"unschedulable": True}})
            if node.is_dead:
                await asyncio.to_thread(self._terminate, node.instance_id)
                await asyncio.sleep(_CLOUD_LOOKS_S)
                await self._send("DELETE", _path(node))
                self._be_patient_with(node)
            for life in self._on(node):
                if not life.waits_for:
                    may_take_s = LATE_ON_DEAD_NODE_S if node.is_dead else LATE_S
                    self._wait(life, Wait.DETACHED, may_take_s)
            async with asyncio.timeout(_PATIENCE_S * 2):
                while self._is_taken(node):  # noqa: ASYNC110 -- whatever takes it
                    await asyncio.sleep(_RETRY_S)
            if not node.is_dead:
                await self._send("DELETE", _path(node))
                await asyncio.to_thread(self._terminate, node.instance_id)
        except (ApiError, TimeoutError) as problem:
            self.errors.append(f"replacing {node.name}: {str(problem) or 'it is never empty'}")
            return
        del self.nodes[node.name]
        self.replaced += 1

    def _be_patient_with(self, node: Node) -> None:
        """Those that are on their way to a dead node, or away from it."""
        for life in self.waiting():
            pod = self.pods.things.get(self._pod_key(life))
            things = [*self.attachments.of_group(f"pvc-{life.uid}"), *([pod] if pod else [])]
            if any(each.spec.node_name == node.name for each in things):
                life.may_take_s = LATE_ON_DEAD_NODE_S

    def _on(self, node: Node) -> list[Life]:
        return [each for each in self.lives.values() if each.node == node.name]

    def _is_taken(self, node: Node) -> bool:
        for life in self._on(node):
            if not life.waits_for:  # it came while the node was cordoned
                self._wait(life, Wait.DETACHED)
        things = [*self.attachments.things.values(), *self.pods.things.values()]
        return any(each.spec.node_name == node.name for each in things)

    async def _launch(self, node: Node) -> None:
        """A new one for it, in its zone."""
        number = max(each.number for each in self.nodes.values())
        number += 1 + (node.number - number - 1) % len(ZONES)
        new = self.nodes[standing.node_name(number)] = Node(number, "", is_cordoned=True)
        zone = ZONES[number % len(ZONES)]
        endpoint = self._made.ec2.endpoint
        [instance] = await asyncio.to_thread(make_instances, endpoint, 1, [zone])
        new.instance_id = instance.instance_id
        shown = standing_pods.instance_of(number, instance.instance_id)
        while True:
            try:
                await nodes.add_as(self._made.plane.api, shown, nodes.node(shown))
                break
            except (aiohttp.ClientError, ApiError, TimeoutError):
                await asyncio.sleep(_RETRY_S)
                await self._send("DELETE", _path(new))
        new.is_cordoned = False

    def _terminate(self, instance_id: str) -> None:
        client = boto3.client(
            "ec2",
            region_name=REGION,
            endpoint_url=self._made.ec2.endpoint,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"mode": "standard", "total_max_attempts": 10}),
        )
        client.terminate_instances(InstanceIds=[instance_id])
        client.close()

    # Requests -------------------------------------------------------------------------------------

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        """Again and again while the API server is away; what is done already is fine."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                try:
                    return await self._made.plane.api.request(
                        method, path, body, content_type=_content_type(method)
                    )
                except ApiError as refusal:
                    if refusal.status == (_THERE if method == "POST" else _GONE):
                        return None
                    if refusal.status != _BUSY and refusal.status < 500:
                        raise
                except (aiohttp.ClientError, TimeoutError):
                    pass  # the API server is away for a while: that is one of the troubles
                await asyncio.sleep(self._choice.uniform(_RETRY_S / 2, _RETRY_S))


def _volume_of(attachment: Thing) -> str:
    return attachment.spec.source.persistent_volume_name


def _path(node: Node) -> str:
    return f"/api/v1/nodes/{node.name}"


def _content_type(method: str) -> str:
    return "application/merge-patch+json" if method == "PATCH" else "application/json"
