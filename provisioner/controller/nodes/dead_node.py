"""Dead nodes (``--release-dead-nodes``): release what Kubernetes still sees on ended instances.

Each round reads the caches. EC2 is asked only about nodes whose kubelet does not answer, and about
attachments that no other flow handles, all of them together and at a steady pace. Everything is
read live before it is written. A taint and the note that it is ours are one write, so that a crash
leaves both or none. A failure for one node is tried again later and stops no other.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence

import structlog

from provisioner import clock
from provisioner.controller.nodes import dead_node_rules as rules
from provisioner.controller.nodes.dead_node_rules import Declare, Leave, Step, TakeBack
from provisioner.controller.shared.node_patch_rules import Operation
from provisioner.controller.shared.services import Services
from provisioner.ec2.batches import is_of_the_call
from provisioner.kube.client import find
from provisioner.kube.events import EventRecorder, Regarding
from provisioner.kube.resources import ATTACHMENTS, CSI_NODES, NODES, PODS
from provisioner.model.attachment import Attachment
from provisioner.model.errors import (
    CHANGED_MEANWHILE,
    Ec2Error,
    KubeError,
    Outcome,
    StorageError,
)
from provisioner.model.ids import is_instance_id
from provisioner.model.names import OUT_OF_SERVICE_FOR
from provisioner.model.node import CsiNode, Node
from provisioner.model.taint import OUT_OF_SERVICE
from provisioner.model.volume import Instance
from provisioner.tell_once import TellOnce

ROUND_S = 15.0
_PAUSE_S = 1.0
# Three calls a round, however many nodes a cut network takes away at once.
_MOST_A_ROUND = 300
_AT_A_TIME = 5_000  # attachments: some milliseconds
_UNKNOWN_TOLD_AFTER_S = 300.0
_MOST_NAMED = 8  # an event has 1024 characters, and each of these names 68

log = structlog.get_logger(__name__)


class DeadNodes:
    """Runs beside the flows. Taints that it has added are removed even once the option is off."""

    def __init__(self, services: Services) -> None:
        self._settings = services.settings
        self._driver = services.settings.driver
        self._client = services.client
        self._caches = services.caches
        self._instances = services.instances
        self._writes = services.node_writes
        self._words = DeadNodeWords(services.events)
        self._changed = asyncio.Event()
        self._look_at_s = self._look_at_attachments_s = 0.0
        self._asked_at_s: dict[str, float] = {}  # by name of node
        self._unanswered: dict[str, tuple[str, Step]] = {}  # UID and step, by name of node

    async def run(self) -> None:
        """Make rounds until cancelled: at once when a node changes, else every 15 s."""
        self._caches.nodes.subscribe(self._node_changed)
        self._caches.csi_nodes.subscribe(self._registration_changed)
        while True:
            self._changed.clear()
            try:
                await self.round()
            except StorageError as error:
                log.warning("cannot tell which nodes are dead", error=error.message)
            except Exception:
                log.exception("handling dead nodes failed")
            await asyncio.sleep(_PAUSE_S)
            try:
                async with asyncio.timeout(ROUND_S - _PAUSE_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Examine all nodes once.

        Raises:
            StorageError: EC2 could not be asked; nothing is decided then.
        """
        for name in list(self._unanswered):
            with _alone(name):
                await self._find_out(name)
        for node in list(self._caches.nodes.values()):
            if _has_our_taint(node):
                with _alone(node.name):
                    await self._advance(node, {})
        now_s = clock.now_s()
        if self._settings.release_dead_nodes and now_s >= self._look_at_s:
            await self._look(now_s)

    async def _look(self, now_s: float) -> None:
        suspects = {
            each.name: each for each in self._caches.nodes.values() if rules.is_suspect(each)
        }
        self._words.forget_all_but(suspects.values())
        if not suspects and now_s < self._look_at_attachments_s:
            return  # of thousands of nodes, some get ready or come all the time
        self._look_at_attachments_s = now_s + ROUND_S
        abandoned = await self._abandoned()
        names = self._in_turn(list(suspects | abandoned), now_s)
        if not names:
            return
        self._look_at_s = now_s + ROUND_S
        wanted: dict[str, frozenset[str]] = {}
        for name in names:
            named = self._named(suspects[name]) if name in suspects else frozenset()
            wanted[name] = named.union(map(rules.instance_of, abandoned.get(name, ())))
        states = await self._states(frozenset().union(*wanted.values()))
        for name in names:
            with _alone(name):
                if name in suspects:
                    # What is no id of an instance says nothing, not even that it is gone.
                    unknown = set(filter(is_instance_id, wanted[name] - states.keys()))
                    self._tell_unknown(suspects[name], unknown, now_s)
                    await self._advance(suspects[name], states)
            with _alone(name):
                await self._release(name, abandoned.get(name, []), states)

    async def _abandoned(self) -> dict[str, list[Attachment]]:
        """By name of node. Others go on meanwhile: each is read again before it is released."""
        registered = {
            node.name: self._registered(node, self._caches.csi_nodes.get(node.name))
            for node in self._caches.nodes.values()
        }
        attachments = list(self._caches.attachments.values())
        found: dict[str, list[Attachment]] = {}
        for at in range(0, len(attachments), _AT_A_TIME):
            await asyncio.sleep(0)
            some = attachments[at : at + _AT_A_TIME]
            for name, held in rules.abandoned(some, registered, self._driver).items():
                found.setdefault(name, []).extend(held)
        return found

    def _tell_unknown(self, node: Node, unknown: Collection[str], now_s: float) -> None:
        csi_node = self._caches.csi_nodes.get(node.name)
        attachments = self._caches.attachments.keyed("node", node.name)
        by = rules.that_alone_name(unknown, node, csi_node, attachments, self._driver)
        self._words.unknown(node, unknown, by, now_s)

    def _in_turn(self, names: list[str], now_s: float) -> list[str]:
        """Those about which EC2 was not asked for the longest time."""
        asked = {name: self._asked_at_s.get(name, float("-inf")) for name in names}
        names = sorted(names, key=asked.__getitem__)[:_MOST_A_ROUND]
        self._asked_at_s = asked | dict.fromkeys(names, now_s)
        return names

    async def _states(self, ids: Collection[str]) -> rules.States:
        """The states of these instances in EC2, described together.

        Instances that EC2 does not know, or refuses to describe, are missing.

        Raises:
            StorageError: EC2 could not be asked.
        """
        looks = (self._instances.instance(each) for each in sorted(ids))
        states = {}
        for found in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(found, Instance):
                states[found.instance_id] = found.state
            elif not isinstance(found, Ec2Error) or is_of_the_call(found):
                raise found
        return states

    async def _advance(self, cached: Node, states: rules.States) -> None:
        """Taint a node, or remove our taint, by what it is now."""
        step = rules.next_step(cached, self._named(cached), states)
        if isinstance(step, Leave):
            return
        node = await find(self._client, NODES, cached.name)
        if node is None or node.uid != cached.uid:
            return
        self._caches.nodes.observe(node)
        csi_node = await find(self._client, CSI_NODES, cached.name)

        def plan(now: Node) -> list[Operation]:
            nonlocal step
            is_another = now.uid != cached.uid
            named = self._named(now, csi_node)
            step = Leave() if is_another else rules.next_step(now, named, states)
            if isinstance(step, Declare):  # before the write, which may be our last act
                log.info("adding the out-of-service taint", node=now.name, instance=step.instances)
            return rules.operations(now, step)

        try:
            changed = await self._writes.change(cached.name, plan)
        except KubeError as error:
            if error.outcome is Outcome.UNKNOWN:
                self._unanswered[cached.name] = (cached.uid, step)
            if error.reason in CHANGED_MEANWHILE:
                return
            raise
        if changed is not None:
            self._words.done(changed, step)

    async def _find_out(self, name: str) -> None:
        """Report a write whose reply was lost, if it was carried out."""
        uid, step = self._unanswered[name]
        node = await find(self._client, NODES, name)
        del self._unanswered[name]
        if node is not None and node.uid == uid and rules.is_done(node, step):
            self._words.done(node, step)

    async def _release(self, name: str, held: list[Attachment], states: rules.States) -> None:
        """Delete attachments to a node that is gone with all its pods, or is another instance."""
        over = [each for each in held if states.get(rules.instance_of(each)) == rules.TERMINATED]
        for each in await self._still_abandoned(name, over) if over else ():
            with _alone(name):
                await self._delete(each)

    async def _still_abandoned(self, name: str, held: list[Attachment]) -> list[Attachment]:
        node = await find(self._client, NODES, name)
        if node is not None:
            registered = self._registered(node, await find(self._client, CSI_NODES, name))
            return rules.abandoned(held, {name: registered}, self._driver).get(name, [])
        pods = await self._client.list(PODS, field_selector=f"spec.nodeName={name}")
        # Kubernetes deletes them within a minute.
        return [] if pods.items or pods.unreadable_keys else held

    async def _delete(self, held: Attachment) -> None:
        version = held.metadata.resource_version
        try:
            await self._client.delete(
                ATTACHMENTS, held.name, uid=held.uid, resource_version=version
            )
        except KubeError as error:
            if error.reason in CHANGED_MEANWHILE:
                return
            raise
        log.warning(
            "deleted a VolumeAttachment to a node that is gone",
            attachment=held.name,
            node=held.spec.node_name,
            instance=rules.instance_of(held),
        )

    def _named(self, node: Node, csi_node: CsiNode | None = None) -> frozenset[str]:
        """All instances that it may be, by its CSINode as it was read, else as it is cached.

        What attachments record was written by us before anything was attached, so the cache has it.
        """
        cached = self._caches.csi_nodes.get(node.name)
        attachments = self._caches.attachments.keyed("node", node.name)
        return rules.instances_of(node, csi_node or cached, attachments, self._driver)

    def _registered(self, node: Node, csi_node: CsiNode | None) -> str:
        return rules.registered_instance(node, csi_node, self._driver)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None or old is None or old.ready != new.ready or _has_our_taint(new):
            self._changed.set()

    def _registration_changed(self, _: CsiNode | None, new: CsiNode | None) -> None:
        """A node with our taint may be another instance now."""
        node = self._caches.nodes.get(new.name) if new is not None else None
        if node is not None and _has_our_taint(node):
            self._changed.set()


class DeadNodeWords:
    """What is told of dead nodes: each change of ours, and what EC2 does not know."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._unknown_since_s: dict[str, float] = {}  # by UID of node
        self._told = TellOnce()

    def done(self, node: Node, step: Step) -> None:
        """Tell of a change that was written."""
        match step:
            case Declare(instances=instances):
                self._declared(node, ", ".join(instances))
            case TakeBack(why=why):
                self._taken_back(node, why)
            case Leave():
                return

    def _declared(self, node: Node, instances: str) -> None:
        log.warning("a node is out of service", node=node.name, instance=instances)
        self._events.record(
            Regarding.of(node, NODES.kind),
            warning=True,
            reason="InstanceTerminated",
            message=f"EC2 reports instance {instances} as terminated: added the taint "
            f"{OUT_OF_SERVICE.key}, so that pods and volumes leave this node at once",
        )

    def _taken_back(self, node: Node, why: str) -> None:
        log.info("a node is in service again", node=node.name, why=why)
        self._events.record(
            Regarding.of(node, NODES.kind),
            warning=False,
            reason="InService",
            message=f"removed the taint {OUT_OF_SERVICE.key} again: {why}",
        )

    def unknown(
        self, node: Node, unknown: Collection[str], attachments: Sequence[str], now_s: float
    ) -> None:
        """EC2 forgets an instance about an hour after its end; a wrong Region never knew it.

        Args:
            node: for which they are named.
            unknown: the instances that EC2 does not know.
            attachments: those by which alone they are named; deleting the Node would not help then.
            now_s: monotonic.
        """
        if not unknown:
            self._unknown_since_s.pop(node.uid, None)
            return
        since_s = self._unknown_since_s.setdefault(node.uid, now_s)
        if now_s - since_s < _UNKNOWN_TOLD_AFTER_S or not self._told.is_news(node.uid):
            return
        self._events.record(
            Regarding.of(node, NODES.kind),
            warning=True,
            reason="InstanceUnknown",
            message=f"EC2 does not know instance {', '.join(sorted(unknown))} in this account and "
            f"Region, which does not prove that it is terminated; {_what_helps(attachments)}",
        )

    def forget_all_but(self, suspects: Iterable[Node]) -> None:
        """Nodes that are no longer looked at can be told about anew."""
        uids = {node.uid for node in suspects}
        self._told.forget_all_but(uids)
        self._unknown_since_s = {
            uid: since_s for uid, since_s in self._unknown_since_s.items() if uid in uids
        }


def _what_helps(attachments: Sequence[str]) -> str:
    if not attachments:
        return "if it is, delete this Node"
    more = len(attachments) - _MOST_NAMED
    return (
        "only VolumeAttachments name it, created for a machine that had this Node's name: if it is "
        f"terminated, kubectl delete volumeattachment {' '.join(attachments[:_MOST_NAMED])}"
        f"{f' (and {more} more)' if more > 0 else ''}"
    )


def _has_our_taint(node: Node) -> bool:
    return OUT_OF_SERVICE_FOR in node.annotations


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """What cannot be done about one node is told, and the others are gone on with."""
    try:
        yield
    except StorageError as error:
        log.warning(
            "cannot handle a dead node",
            node=name,
            reason=error.reason,
            error=error.message,
        )
