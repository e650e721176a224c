"""Everybody else in the cluster: users, scheduler, kubelets, kube-controller-manager, autoscaler.

They act on the API server in memory as soon as they see something, each some tenths of a second
later, and not at all while it is away. What they ask for and when they got it is noted here.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from provisioner.model.claim import SELECTED_NODE
from provisioner.model.driver import EBS_DRIVER
from tests.bench import standing
from tests.bench.standing import ZONES, Standing
from tests.day.api_server import ApiServer, key_of
from tests.day.clocks import NOW, wall_clock
from tests.day.documents import Json

if TYPE_CHECKING:
    from tests.day.account import Account

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
ATTACHMENTS, NODES, CSI_NODES = "volumeattachments", "nodes", "csinodes"
_BOUND = {
    "pv.kubernetes.io/bind-completed": "yes",
    "pv.kubernetes.io/bound-by-controller": "yes",
}
_RETRY_S = 5.0
_HEARTBEAT_S = 300.0
_DELETED_AFTER_S = 120.0  # for each claim that comes, another one goes
_HASTY = 0.02  # claims that their user deletes within seconds
_DEAD = 0.05  # instances that end without a drain
_MOST_ON_NODE = 20
_RECENT = 5
_HOUR_S = 3600.0


@dataclass(slots=True, eq=False)
class Life:
    """One claim and what belongs to it. Seconds of the day; ``since_s``: None while it is content.

    ``waits_for``: "bound", "attached", "detached" or "gone".
    """

    key: str
    uid: str
    zone: str
    wants_pod: bool
    volume: str = ""  # the PersistentVolume
    handle: str = ""
    node: str = ""
    attachment: str = ""
    is_deleting: bool = False
    waits_for: str = ""
    since_s: float = 0.0


@dataclass(slots=True, eq=False)
class Node:
    """One node; a cordoned one gets no pods."""

    name: str
    zone: str
    instance_id: str
    number: int
    lives: set[Life] = field(default_factory=set)
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Churn:
    """How much happens: shares of all volumes in an hour, and in what time all nodes are new."""

    claims: float = 0.05
    restarts: float = 0.02  # pods that are scheduled anew, to another node
    strangers: float = 0.1  # writes of others to what is being worked on
    nodes_within_s: float = 24 * _HOUR_S


class Cluster:
    """The others.

    Attributes:
        lives: of all claims that are there, by UID.
        ended: how many claims, with their volumes, are gone.
        ghosts: when a claim was gone, by UID, with its volume's id.
        took_s: how long each thing took, by what it was.
    """

    def __init__(self, api: ApiServer, account: Account, there: Standing, churn: Churn) -> None:
        self._api, self._account, self._there, self._churn = api, account, there, churn
        self.lives: dict[str, Life] = {}
        self.nodes: dict[str, Node] = {}
        self.ended = self.replaced = 0
        self.ghosts: dict[str, tuple[float, str]] = {}
        self.took_s: defaultdict[str, list[float]] = defaultdict(list)
        self.is_still = False
        self._by_volume: dict[str, Life] = {}
        self._by_attachment: dict[str, Life] = {}
        self._by_key: dict[str, Life] = {}
        self._open: dict[str, list[Node]] = {zone: [] for zone in ZONES}
        self._next_claim, self._next_node, self._serial = there.volumes, there.nodes, there.volumes
        self._choice = random.Random(7)
        self._pool: list[Life] = []
        self._recent: deque[Life] = deque(maxlen=_RECENT)

    # The beginning --------------------------------------------------------------------------------

    def load(self, cluster_id: str) -> None:
        """Put what stands there into the API server and into EC2."""
        api, there = self._api, self._there
        api.load("storageclasses", standing.storage_class())
        for n in range(there.nodes):
            self._add_node(n, api.load)
        for n in range(there.volumes):
            claim, volume = standing.claim(n, there.nodes), standing.persistent_volume(n)
            ec2 = there.volume(n, cluster_id)
            for each in (claim, volume):
                del each["metadata"]["managedFields"]
            api.load(CLAIMS, claim)
            api.load(VOLUMES, volume)
            self._account.place(ec2, n // there.nodes)
            is_held = n < there.attachments
            life = Life(key_of(claim), claim["metadata"]["uid"], ec2.zone, is_held)
            life.volume, life.handle = volume["metadata"]["name"], ec2.volume_id
            self._remember(life)
            if is_held:
                body = standing.attachment(n, there.nodes)
                del body["metadata"]["managedFields"]
                api.load(ATTACHMENTS, body)
                self._settle_on(life, body["spec"]["nodeName"], body["metadata"]["name"])
        api.hook(VOLUMES, self._volume)
        api.hook(CLAIMS, self._claim)
        api.hook(ATTACHMENTS, self._attachment)

    def _remember(self, life: Life) -> None:
        self.lives[life.uid] = self._by_key[life.key] = life
        if life.volume:
            self._by_volume[life.volume] = life
        self._pool.append(life)

    def _settle_on(self, life: Life, node: str, attachment: str) -> None:
        life.node, life.attachment = node, attachment
        self._by_attachment[attachment] = life
        self.nodes[node].lives.add(life)

    def _add_node(self, n: int, put: Callable[[str, Json], object]) -> None:
        zone, name = ZONES[n % len(ZONES)], standing.node_name(n)
        node, csi_node = standing.node(n), standing.csi_node(n)
        for each in (node, csi_node):
            del each["metadata"]["managedFields"]
        put(NODES, node)
        put(CSI_NODES, csi_node)
        made = Node(name, zone, standing.instance_id(n), n)
        self._account.launch(made.instance_id, zone)
        self.nodes[name] = made
        self._open[zone].append(made)
        asyncio.get_running_loop().call_later(
            self._choice.uniform(0, _HEARTBEAT_S), self._heartbeat, made
        )

    def _heartbeat(self, node: Node) -> None:
        if node.name not in self.nodes:
            return
        if not self._api.is_down:
            at = wall_clock().strftime("%Y-%m-%dT%H:%M:%SZ")
            status = {"status": {"conditions": standing.conditions(at)}}
            self._api.change(NODES, node.name, status)
        asyncio.get_running_loop().call_later(_HEARTBEAT_S, self._heartbeat, node)

    def begin(self) -> None:
        """Have users and nodes come and go from now on."""
        volumes = self._there.volumes
        self._every(_HOUR_S / (self._churn.claims * volumes), self._create)
        self._every(_HOUR_S / (self._churn.restarts * volumes), self._restart_any)
        self._every(self._churn.nodes_within_s / self._there.nodes, self._replace_any)
        self._every(_HOUR_S / (self._churn.strangers * volumes), self._touch_any)

    def _every(self, mean_s: float, happens: Callable[[], None]) -> None:
        def again() -> None:
            if self.is_still:
                return
            if not self._api.is_down:
                happens()
            asyncio.get_running_loop().call_later(self._choice.expovariate(1 / mean_s), again)

        asyncio.get_running_loop().call_later(self._choice.expovariate(1 / mean_s), again)

    def _soon(self, act: Callable[..., object], *given: Any, after_s: float = 0.2) -> None:
        """Have somebody act in a moment, or once the API server is there again."""

        def try_it() -> None:
            if self._api.is_down:
                late_s = self._choice.uniform(_RETRY_S / 2, _RETRY_S)
                asyncio.get_running_loop().call_later(late_s, try_it)
            else:
                act(*given)

        late_s = self._choice.uniform(after_s / 2, after_s * 1.5)
        asyncio.get_running_loop().call_later(late_s, try_it)

    # Waiting --------------------------------------------------------------------------------------

    def late(self, longer_than_s: float) -> list[Life]:
        """Those that have waited for longer than that."""
        until_s = NOW.s - longer_than_s
        return [each for each in self.lives.values() if each.waits_for and each.since_s < until_s]

    def _wait(self, life: Life, waits_for: str) -> None:
        life.waits_for, life.since_s = waits_for, NOW.s
        self._recent.append(life)

    def _got(self, life: Life) -> None:
        self.took_s[life.waits_for].append(NOW.s - life.since_s)
        life.waits_for = ""

    # Users and scheduler --------------------------------------------------------------------------

    def _create(self) -> None:
        n, self._next_claim = self._next_claim, self._next_claim + 1
        body = standing.claim(n, self._there.nodes)
        zone = ZONES[n % len(ZONES)]
        node = self._pick(zone)
        if node is None:
            return
        meta = {key: body["metadata"][key] for key in ("name", "namespace", "labels")}
        asked = {"volume.kubernetes.io/storage-provisioner": EBS_DRIVER, SELECTED_NODE: node.name}
        meta["annotations"] = asked
        spec = {key: value for key, value in body["spec"].items() if key != "volumeName"}
        made = self._api.create(CLAIMS, {"metadata": meta, "spec": spec})
        wants_pod = self._choice.random() * self._there.volumes < self._there.attachments
        life = Life(key_of(made), made["metadata"]["uid"], zone, wants_pod)
        life.node = node.name
        self._remember(life)
        self._wait(life, "bound")
        if self._choice.random() < _HASTY:
            self._soon(self._delete, life, after_s=self._choice.uniform(0.1, 4.0))
        else:
            self._soon(self._delete_any, after_s=_DELETED_AFTER_S)

    def _pick(self, zone: str) -> Node | None:
        for _ in range(20):
            node = self._choice.choice(self._open[zone]) if self._open[zone] else None
            if node is not None and len(node.lives) < _MOST_ON_NODE:
                return node
        return None

    def _any(self, fits: Callable[[Life], bool]) -> Life | None:
        for _ in range(50):
            if not self._pool:
                return None
            at = self._choice.randrange(len(self._pool))
            life = self._pool[at]
            if life.uid not in self.lives or life.is_deleting:
                self._pool[at] = self._pool[-1]
                self._pool.pop()
            elif fits(life):
                return life
        return None

    def _delete_any(self) -> None:
        life = self._any(lambda each: not each.waits_for)
        if life is None:
            self._soon(self._delete_any, after_s=_DELETED_AFTER_S)
        else:
            self._delete(life)

    def _delete(self, life: Life) -> None:
        """The pod is deleted, then the claim."""
        if life.is_deleting or life.uid not in self.lives:
            return
        life.is_deleting, life.wants_pod = True, False
        if life.attachment:
            self._detach(life)
        else:
            self._delete_claim(life)

    def _delete_claim(self, life: Life) -> None:
        self._wait(life, "gone")
        self._api.delete(CLAIMS, life.key)

    def _restart_any(self) -> None:
        life = self._any(lambda each: bool(each.attachment) and not each.waits_for)
        if life is not None:
            self._detach(life)

    def _touch_any(self) -> None:
        """Somebody annotates an object in whose midst the controller is, most of the time."""
        if not self._recent:
            return
        life = self._choice.choice(self._recent)
        self._serial += 1
        note = {"metadata": {"annotations": {"example.com/touched": f"{self._serial}"}}}
        things = ((CLAIMS, life.key), (VOLUMES, life.volume), (ATTACHMENTS, life.attachment))
        plural, key = self._choice.choice(things)
        self._api.change(plural, key, note)

    def _detach(self, life: Life) -> None:
        if life.waits_for != "detached":
            self._wait(life, "detached")
        self._api.delete(ATTACHMENTS, life.attachment)

    def _place(self, life: Life) -> None:
        """The pod is scheduled, and its volume has to be attached."""
        if not life.wants_pod or life.attachment or life.uid not in self.lives:
            return
        node = self.nodes.get(life.node)
        if node is None or node.is_cordoned or len(node.lives) >= _MOST_ON_NODE:
            node = self._pick(life.zone)
        if node is None:
            self._soon(self._place, life, after_s=10.0)
            return
        self._serial += 1
        name = f"csi-{self._serial:064x}"
        body = {
            "metadata": {"name": name},
            "spec": {
                "attacher": EBS_DRIVER,
                "nodeName": node.name,
                "source": {"persistentVolumeName": life.volume},
            },
        }
        self._settle_on(life, node.name, name)
        self._wait(life, "attached")
        self._api.create(ATTACHMENTS, body)

    # kube-controller-manager ----------------------------------------------------------------------

    def _volume(self, what: str, obj: Json) -> None:
        meta, name = obj["metadata"], obj["metadata"]["name"]
        if what == "ADDED":
            self._soon(self._bind, name)
        elif what == "DELETED":
            life = self._by_volume.pop(name, None)
            if life is not None and life.is_deleting and life.waits_for == "gone":
                self._end(life)
        elif meta.get("deletionTimestamp") and obj["status"].get("phase") != "Bound":
            self._soon(self._api.drop_finalizer, VOLUMES, name, "kubernetes.io/pv-protection")

    def _bind(self, name: str) -> None:
        found = self._api.find(VOLUMES, name)
        if found is None:
            return
        holder = found["spec"]["claimRef"]
        life = self.lives.get(holder["uid"])
        claim = self._api.find(CLAIMS, f"{holder['namespace']}/{holder['name']}")
        if claim is None or claim["metadata"]["uid"] != holder["uid"]:
            self._release(name)
            return
        self._api.change(VOLUMES, name, {"status": {"phase": "Bound"}})
        bound = {
            "metadata": {"annotations": _BOUND},
            "spec": {"volumeName": name},
            "status": {"phase": "Bound", "capacity": found["spec"]["capacity"]},
        }
        self._api.change(CLAIMS, key_of(claim), bound)
        if life is None:
            return
        life.volume, life.handle = name, found["spec"]["csi"]["volumeHandle"]
        self._by_volume[name] = life
        if life.waits_for == "bound":
            self._got(life)
            self._soon(self._place, life)

    def _release(self, name: str) -> None:
        if self._api.find(VOLUMES, name) is not None:
            self._api.change(VOLUMES, name, {"status": {"phase": "Released"}})

    def _claim(self, what: str, obj: Json) -> None:
        meta = obj["metadata"]
        if what == "MODIFIED" and meta.get("deletionTimestamp"):
            protection = "kubernetes.io/pvc-protection"
            self._soon(self._api.drop_finalizer, CLAIMS, key_of(obj), protection)
        elif what == "MODIFIED" and _waits_for_node(obj):
            self._soon(self._schedule, key_of(obj))
        elif what == "DELETED":
            life = self._by_key.pop(key_of(obj), None)
            if life is None:
                return
            if obj["spec"].get("volumeName"):
                self._soon(self._release, obj["spec"]["volumeName"])
            else:  # whether there ever was a volume, only EC2 can tell
                self._end(life)

    def _schedule(self, key: str) -> None:
        """Another node, if the controller has said that there is no place for the first one."""
        claim, life = self._api.find(CLAIMS, key), self._by_key.get(key)
        if claim is None or life is None or not _waits_for_node(claim):
            return
        node = self._pick(life.zone)
        if node is None:
            self._soon(self._schedule, key, after_s=10.0)
            return
        life.node = node.name
        selected = {"metadata": {"annotations": {SELECTED_NODE: node.name}}}
        self._api.change(CLAIMS, key, selected)

    def _end(self, life: Life) -> None:
        if life.waits_for == "gone":
            self._got(life)
        self.lives.pop(life.uid, None)
        self.ghosts[life.uid] = (NOW.s, life.handle)
        self.ended += 1

    def _attachment(self, what: str, obj: Json) -> None:
        name = obj["metadata"]["name"]
        life = self._by_attachment.get(name)
        if life is None:
            return
        if what == "MODIFIED" and obj["status"].get("attached") and life.waits_for == "attached":
            self._got(life)
        elif what == "DELETED":
            del self._by_attachment[name]
            self._left(life)

    def _left(self, life: Life) -> None:
        """The volume is detached: what the pod was deleted for can go on."""
        node, life.attachment = self.nodes.get(life.node), ""
        if life.waits_for == "detached":
            self._got(life)
        if node is not None:
            node.lives.discard(life)
            if node.is_cordoned and not node.lives:
                self._soon(self._remove_node, node, after_s=5.0)
        if life.is_deleting:
            self._soon(self._delete_claim, life)
        else:
            life.node = ""
            self._soon(self._place, life, after_s=1.0)

    # Nodes ----------------------------------------------------------------------------------------

    def _replace_any(self) -> None:
        """The oldest node goes, and a new one has come for it."""
        node = next((each for each in self.nodes.values() if not each.is_cordoned), None)
        if node is None:
            return
        n = self._next_node + (node.number - self._next_node) % len(ZONES)
        self._next_node = n + 1
        self._add_node(n, self._api.create)
        node.is_cordoned = True
        self._open[node.zone].remove(node)
        if self._choice.random() < _DEAD:
            self._lose(node)
        for life in list(node.lives):
            self._soon(self._drain, life, node, after_s=60.0)
        if not node.lives:
            self._soon(self._remove_node, node, after_s=5.0)

    def _drain(self, life: Life, node: Node) -> None:
        if life in node.lives and life.attachment:
            self._detach(life)

    def _lose(self, node: Node) -> None:
        """Its instance ends as it is; who was there is evicted later."""
        self._account.terminate(node.instance_id)
        self._soon(self._api.delete, NODES, node.name, after_s=20.0)
        self._soon(self._api.delete, CSI_NODES, node.name, after_s=20.0)

    def _remove_node(self, node: Node) -> None:
        if self.nodes.pop(node.name, None) is None:
            return
        self.replaced += 1
        self._api.delete(NODES, node.name)
        self._api.delete(CSI_NODES, node.name)
        if node.instance_id in self._account.instances:
            self._account.terminate(node.instance_id)


def _waits_for_node(claim: Json) -> bool:
    meta = claim["metadata"]
    is_selected = SELECTED_NODE in meta.get("annotations", {})
    return not (is_selected or claim["spec"].get("volumeName") or meta.get("deletionTimestamp"))
