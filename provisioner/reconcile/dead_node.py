"""Dead nodes (``--release-dead-nodes``): let go of what Kubernetes still sees on ended instances.

Each round reads the caches; EC2 is asked about nodes that are not ready only, all of them together
and at a steady pace. Before anything is written it is read live. A taint and the note that it is
ours are one write, so that a crash leaves both or none.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import structlog

from provisioner.decide import dead_node as rules
from provisioner.decide.dead_node import Declare, TakeBack
from provisioner.edges import Edges
from provisioner.kube.client import Patch
from provisioner.kube.events import Regarding
from provisioner.kube.resources import ATTACHMENTS, CSI_NODES, NODES, PODS
from provisioner.model.attachment import Attachment
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.node import OUT_OF_SERVICE_FOR, CsiNode, Node
from provisioner.model.taint import OUT_OF_SERVICE
from provisioner.model.volume import Instance

ROUND_S = 15.0
_PAUSE_S = 1.0
# Three calls a round, however many nodes a cut network takes away at once.
_MOST_A_ROUND = 300
_UNKNOWN_TOLD_AFTER_S = 300.0
_MET = frozenset({Reason.OBJECT_NOT_FOUND, Reason.CONFLICT})  # somebody was faster: look again

log = structlog.get_logger(__name__)


class DeadNodes:
    """Runs beside the flows. What we have added is taken back even after the option is off."""

    def __init__(self, edges: Edges) -> None:
        self._settings = edges.settings
        self._driver = edges.settings.driver
        self._client = edges.client
        self._caches = edges.caches
        self._instances = edges.instances
        self._events = edges.events
        self._changed = asyncio.Event()
        self._look_at_s = 0.0
        self._asked_at_s: dict[str, float] = {}  # by name of node
        self._unknown_since_s: dict[str, float] = {}  # by UID of node
        self._told: set[str] = set()

    async def run(self) -> None:
        """Go round for ever: at once when a node changes, else every 15 s."""
        self._caches.nodes.subscribe(self._node_changed)
        while True:
            self._changed.clear()
            try:
                await self.round()
            except StorageError as error:
                log.warning("cannot tell which nodes are dead", error=error.message)
            except Exception:
                log.exception("cannot look after dead nodes")
            await asyncio.sleep(_PAUSE_S)
            try:
                async with asyncio.timeout(ROUND_S - _PAUSE_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Look at all nodes once.

        Raises:
            StorageError: the API server or EC2 could not be asked; nothing is decided then.
        """
        for node in list(self._caches.nodes.values()):
            if OUT_OF_SERVICE_FOR in node.annotations:
                await self._advance(node, {})
        now_s = asyncio.get_running_loop().time()
        if self._settings.release_dead_nodes and now_s >= self._look_at_s:
            await self._look(now_s)

    async def _look(self, now_s: float) -> None:
        suspects = {
            each.name: each for each in self._caches.nodes.values() if rules.is_suspect(each)
        }
        abandoned = rules.abandoned(
            self._caches.attachments.values(),
            {node.name for node in self._caches.nodes.values()},
            self._driver,
        )
        names = self._in_turn([*suspects, *abandoned], now_s)
        self._forget_all_but(suspects.values())
        if not names:
            return
        self._look_at_s = now_s + ROUND_S
        wanted = {name: self._named(name, suspects, abandoned) for name in names}
        states = await self._states(frozenset().union(*wanted.values()))
        for name in names:
            if name in suspects:
                self._tell_unknown(suspects[name], wanted[name] - states.keys(), now_s)
                await self._advance(suspects[name], states)
            else:
                await self._release(name, abandoned[name], states)

    def _in_turn(self, names: list[str], now_s: float) -> list[str]:
        """Those that were not asked about for longest."""
        asked = {name: self._asked_at_s.get(name, float("-inf")) for name in names}
        names = sorted(names, key=asked.__getitem__)[:_MOST_A_ROUND]
        self._asked_at_s = asked | dict.fromkeys(names, now_s)
        return names

    def _named(
        self, name: str, suspects: dict[str, Node], abandoned: dict[str, list[Attachment]]
    ) -> frozenset[str]:
        if name in suspects:
            csi_node = self._caches.csi_nodes.get(name)
            return rules.instances_of(suspects[name], csi_node, self._driver)
        return frozenset(rules.instance_of(each) for each in abandoned[name])

    async def _states(self, ids: Collection[str]) -> rules.States:
        """What EC2 says of these instances; those asked for at once share calls.

        Raises:
            StorageError: EC2 could not be asked about one of them.
        """
        looks = (self._instances.instance(each) for each in sorted(ids))
        states = {}
        for found in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(found, Instance):
                states[found.instance_id] = found.state
            elif not isinstance(found, StorageError) or (
                found.reason is not Reason.INSTANCE_NOT_FOUND
            ):
                raise found
        return states

    async def _advance(self, cached: Node, states: rules.States) -> None:
        """Taint a node, or take our taint back, as it is now."""
        csi_node = self._caches.csi_nodes.get(cached.name)
        if isinstance(self._step(cached, csi_node, states), rules.Leave):
            return
        node = await self._find_node(cached.name)
        if node is None or node.uid != cached.uid:
            return
        step = self._step(node, await self._find_csi_node(cached.name), states)
        match step:
            case Declare(instances=instances, taints=taints):
                if await self._write(node, taints, ",".join(instances)):
                    self._declared(node, instances)
            case TakeBack(taints=taints, why=why):
                if await self._write(node, taints, None):
                    self._taken_back(node, why)
            case _:
                return

    def _step(self, node: Node, csi_node: CsiNode | None, states: rules.States) -> rules.Step:
        return rules.next_step(node, csi_node, driver=self._driver, states=states)

    async def _write(self, node: Node, taints: Iterable[Any], note: str | None) -> bool:
        """Write taints and note; False if somebody has changed the node since it was read."""
        meta = {
            "resourceVersion": node.metadata.resource_version,
            "annotations": {OUT_OF_SERVICE_FOR: note},
        }
        body = {"metadata": meta, "spec": {"taints": msgspec.to_builtins(list(taints))}}
        try:
            changed = await self._client.patch(NODES, node.name, body, kind=Patch.MERGE)
        except KubeError as error:
            if error.reason in _MET:
                return False
            raise
        self._caches.nodes.observe(changed)
        return True

    def _declared(self, node: Node, instances: Collection[str]) -> None:
        ids = ", ".join(instances)
        log.warning("a node is out of service", node=node.name, instance=ids)
        self._events.record(
            Regarding.of(node, NODES.kind),
            warning=True,
            reason="InstanceTerminated",
            message=f"EC2 says that instance {ids} is terminated: added the taint "
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

    def _tell_unknown(self, node: Node, unknown: Collection[str], now_s: float) -> None:
        """EC2 forgets an instance about an hour after its end; a wrong Region never knew it."""
        if not unknown:
            self._unknown_since_s.pop(node.uid, None)
            return
        since_s = self._unknown_since_s.setdefault(node.uid, now_s)
        if now_s - since_s < _UNKNOWN_TOLD_AFTER_S or node.uid in self._told:
            return
        self._told.add(node.uid)
        self._events.record(
            Regarding.of(node, NODES.kind),
            warning=True,
            reason="InstanceUnknown",
            message=f"EC2 knows no instance {', '.join(sorted(unknown))} in this account and "
            "Region, which is no proof that it has ended; if it has, delete this Node",
        )

    def _forget_all_but(self, suspects: Iterable[Node]) -> None:
        uids = {node.uid for node in suspects}
        self._told &= uids
        self._unknown_since_s = {
            uid: since_s for uid, since_s in self._unknown_since_s.items() if uid in uids
        }

    async def _release(self, name: str, held: list[Attachment], states: rules.States) -> None:
        """Delete attachments to a node that is gone with all its pods."""
        over = [each for each in held if states.get(rules.instance_of(each)) == rules.TERMINATED]
        if not over or await self._find_node(name) is not None:
            return
        pods = await self._client.list(PODS, field_selector=f"spec.nodeName={name}")
        if pods.items or pods.unreadable_keys:
            return  # Kubernetes deletes them within a minute
        for each in over:
            version = each.metadata.resource_version
            try:
                await self._client.delete(
                    ATTACHMENTS, each.name, uid=each.uid, resource_version=version
                )
            except KubeError as error:
                if error.reason not in _MET:
                    raise
                continue
            log.warning(
                "deleted the attachment to a node that is gone",
                attachment=each.name,
                node=name,
                instance=rules.instance_of(each),
            )

    async def _find_node(self, name: str) -> Node | None:
        """The node as it is now; None only when the API server has none."""
        try:
            return await self._client.get(NODES, name)
        except KubeError as error:
            if error.reason is Reason.OBJECT_NOT_FOUND:
                return None
            raise

    async def _find_csi_node(self, name: str) -> CsiNode | None:
        try:
            return await self._client.get(CSI_NODES, name)
        except KubeError as error:
            if error.reason is Reason.OBJECT_NOT_FOUND:
                return None
            raise

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None or old is None or old.ready != new.ready or self._is_marked(new):
            self._changed.set()

    def _is_marked(self, node: Node) -> bool:
        return OUT_OF_SERVICE_FOR in node.annotations
