"""Claims that get another volume with the same data (VolumeMove)."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from provisioner.kube.client import KubeClient
from provisioner.model.driver import EBS_DRIVER, IN_TREE_DRIVER
from provisioner.model.errors import StorageError
from provisioner.model.persistent_volume import MIGRATED_TO, PROVISIONED_BY
from provisioner.model.volume_move import MoveTarget
from provisioner.moves import wish_rules
from provisioner.moves.requests import Moves
from provisioner.sandbox import nodes
from provisioner.sandbox.api import Api, ApiError
from tests.cluster import epochs, hands
from tests.cluster.hands import ATTACHMENTS, PVS, Json
from tests.cluster.replicas import eventually
from tests.cluster.source_stories import SIZE_GIB, SourceStory

MANIFESTS = Path(__file__).parents[2] / "manifests" / "volume-moves"
MOVES = "/apis/ebs-provisioner.io/v1alpha1"
NOTE, LABEL = {"example.com/note": "stays"}, {"app": "shop"}
OF_MOVES = {"ebs-provisioner.io/held-for-move", "ebs-provisioner.io/policy-before-move"}
_HOSTNAME = "kubernetes.io/hostname"
_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    ),
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    ),
}


@contextlib.asynccontextmanager
async def moves_installed(api: Api) -> AsyncIterator[None]:
    """The CRD and the rights of manifests/volume-moves and the webhook's, removed at the end."""
    files = [MANIFESTS / each for each in ("crd.yaml", "rbac.yaml", "policy.yaml")]
    files.append(MANIFESTS.parent / "webhook-volume-moves" / "rbac.yaml")
    objects = [each for file in files for each in yaml.safe_load_all(file.read_text())]
    paths = [f"{_PATHS[each['kind']]}/{each['metadata']['name']}" for each in objects]
    try:
        for each in objects:
            await api.create(_PATHS[each["kind"]], each)

        async def served() -> bool:
            with contextlib.suppress(Exception):
                return "items" in await api.get(f"{MOVES}/volumemoves")
            return False

        await eventually("VolumeMoves are served", served)
        yield
    finally:
        for path in reversed(paths):
            await hands.discard(api, path)


WITHOUT_COPY = frozenset(
    {
        "PATCH volumemoves",
        "PATCH volumemoves/status",
        "PATCH persistentvolumes",
        "POST persistentvolumes",
        "DELETE persistentvolumeclaims",
        "POST persistentvolumeclaims",
        "DELETE persistentvolumes",
    }
)
"""What a move writes at least to whose claim another volume that is there is given."""


class MoveStory(SourceStory):
    """A claim in one zone, and nodes there and in another zone."""

    OPTIONS: ClassVar[Mapping[str, object]] = {"volume_moves": True}
    STEP_S = 300.0

    @property
    def there(self) -> str:
        return self.slot.elsewhere.zone

    @property
    def node_here(self) -> str:
        return self.slot.instance.private_dns_name

    @property
    def node_there(self) -> str:
        return f"{self.name}-there"

    @property
    def move_path(self) -> str:
        return f"{MOVES}/namespaces/{self.world.namespace}/volumemoves/{self.name}"

    async def furnish(self) -> None:
        name, api = self.node_there, self.world.api
        body = nodes.node(self.slot.elsewhere)
        body["metadata"]["name"] = body["metadata"]["labels"][_HOSTNAME] = name
        body["spec"]["unschedulable"] = True
        node = await api.create("/api/v1/nodes", body)
        csi_node = nodes.csi_node(self.slot.elsewhere, node["metadata"]["uid"])
        csi_node["metadata"]["name"] = csi_node["metadata"]["ownerReferences"][0]["name"] = name
        csi_node["spec"]["drivers"][0]["name"] = self.slot.driver
        await api.create("/apis/storage.k8s.io/v1/csinodes", csi_node)
        await self.nodes_are_ready()
        await super().furnish()
        noted = {"metadata": {"labels": LABEL, "annotations": NOTE}}
        await api.patch(self.claim_path, noted)
        policy = {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}
        await api.patch(f"{PVS}/{self.pv}", policy)

    async def ask(self, **spec: Any) -> None:
        """Create the VolumeMove."""
        wish = {"claimName": self.name, "to": {"zone": self.there}, "keepSource": "1h"} | spec
        body = {
            "apiVersion": "ebs-provisioner.io/v1alpha1",
            "kind": "VolumeMove",
            "metadata": {"name": self.name},
            "spec": wish,
        }
        await self.world.api.create(self.move_path.rpartition("/")[0], body)

    async def nodes_are_ready(self) -> None:
        """Both nodes tell how they are, as kubelets do: also that they use no volume."""
        ready = {"status": nodes.ready_status(self.slot.instance, dt.datetime.now(dt.UTC))}
        for name in (self.node_there, self.node_here):
            await self.world.api.patch(f"/api/v1/nodes/{name}/status", ready, "strategic")

    def pod_template(self, label: str) -> Json:
        """Of a pod that mounts ``data``; the scheduler finds it one of this story's two nodes."""
        hosts = {"key": _HOSTNAME, "operator": "In", "values": [self.node_here, self.node_there]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}
        return {
            "metadata": {"labels": {"app": label}},
            "spec": {
                # The nodes of stories are cordoned: nobody else's pods are to come to them.
                "tolerations": [{"operator": "Exists"}],
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
                },
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "main",
                        "image": "main",
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }
                ],
            },
        }

    async def is_in(self, phase: str) -> Json:
        """Wait until the move is in a phase."""
        return await self.object_when(
            f"the move is {phase}",
            self.move_path,
            lambda move: move.get("status", {}).get("phase") == phase,
        )

    async def bound_volume(self) -> str:
        """The id of the volume that the claim is Bound to."""
        claim = await self.world.api.get(self.claim_path)
        assert claim["status"]["phase"] == "Bound", claim
        found = await self.world.api.get(f"{PVS}/{claim['spec']['volumeName']}")
        return str(found["spec"]["csi"]["volumeHandle"])

    async def snapshots(self) -> dict[str, Json]:
        """What EC2 holds of this story."""
        return await asyncio.to_thread(self.world.hand.snapshots_of, self.cluster_id)

    async def persistent_volumes(self) -> list[Json]:
        """Those of the claim's name, whichever claim that was."""
        return [
            each
            for each in await hands.items(self.world.api, PVS)
            if (each["spec"].get("claimRef") or {}).get("name") == self.name
        ]

    async def run_move(self, *words: str) -> tuple[int | None, str, str]:
        """Exit code, what is printed, what is complained of."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "provisioner.cli", "ebs", "move", *words),
            *("--kubeconfig", str(self.world.sandbox.plane.kubeconfig)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def clear(self) -> None:
        await self._free_volumes()
        named = await self.persistent_volumes()
        await self.remove(self.move_path)
        await self.remove(self.claim_path)
        for each in named:
            await self.remove(f"{PVS}/{each['metadata']['name']}")
        await super().clear()
        for snapshot_id in await self.snapshots():
            await asyncio.to_thread(self.world.hand.ec2.delete_snapshot, SnapshotId=snapshot_id)
        await hands.discard(self.world.api, f"/api/v1/nodes/{self.node_there}")

    async def _free_volumes(self) -> None:
        """Detach them by hand, whatever wants them attached."""
        for each in await hands.items(self.world.api, ATTACHMENTS):
            if each["spec"]["attacher"] == self.slot.driver:
                await self.remove(f"{ATTACHMENTS}/{each['metadata']['name']}")
        ec2 = self.world.hand.ec2
        for volume_id, volume in (await self.volumes()).items():
            if volume["Attachments"]:
                await asyncio.to_thread(ec2.detach_volume, VolumeId=volume_id, Force=True)

        async def free() -> bool:
            return not any(each["Attachments"] for each in (await self.volumes()).values())

        await self.until("nothing is attached", free)


class MoveAcross(MoveStory):
    """A claim is moved to another zone; its old volume is kept."""

    SNAPSHOTS = 1
    LEAST = frozenset(
        {
            "PATCH volumemoves",
            "PATCH volumemoves/status",
            "PATCH persistentvolumes",
            "CreateSnapshot",
            "CreateVolume",
            "POST persistentvolumes",
            "DELETE persistentvolumeclaims",
            "POST persistentvolumeclaims",
            "DeleteSnapshot",
        }
    )

    async def tell(self) -> None:
        await self.ask()
        await self.is_in("Done")
        await self.until("no volume has the mark of one that nothing names", self._all_unmarked)

    async def _all_unmarked(self) -> bool:
        marks = "ebs-provisioner.io/unclaimed"
        found = (await self.volumes()).values()
        return all("Tags" in v and marks not in hands.tags_of(v) for v in found)

    async def check(self) -> None:
        """One claim, Bound to the data in the other zone; the old volume is there; no snapshot."""
        claim = await self.world.api.get(self.claim_path)
        meta, name = claim["metadata"], claim["spec"]["volumeName"]
        assert claim["status"]["phase"] == "Bound", claim
        assert meta["labels"] == LABEL
        assert meta["annotations"].items() >= NOTE.items()
        assert claim["spec"]["resources"]["requests"]["storage"] == f"{SIZE_GIB}Gi"
        new = await self.world.api.get(f"{PVS}/{name}")
        old = await self.world.api.get(f"{PVS}/{self.pv}")
        assert new["spec"]["claimRef"]["uid"] == meta["uid"]
        assert new["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert old["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        assert not OF_MOVES & old["metadata"].get("annotations", {}).keys(), old
        volumes = await self.volumes()
        made = new["spec"]["csi"]["volumeHandle"]
        assert set(volumes) == {self.volume_id, made}, volumes
        assert volumes[made]["AvailabilityZone"] == self.there
        taken = await self.calls("CreateSnapshot", about=self.volume_id)
        assert len(taken) == self.SNAPSHOTS, taken
        assert volumes[made]["SnapshotId"]
        assert await self.snapshots() == {}
        assert len(await self.made()) == 1
        assert len(await self.persistent_volumes()) == 2
        self.check_log()


class MoveWarms(MoveAcross):
    """The volume is on a node, without Kubernetes' doing: a snapshot is taken before that ends."""

    SNAPSHOTS = 2

    async def furnish(self) -> None:
        await super().furnish()
        attach = self.world.hand.ec2.attach_volume
        instance_id = self.slot.instance.instance_id
        await asyncio.to_thread(
            attach, VolumeId=self.volume_id, InstanceId=instance_id, Device="/dev/xvdcz"
        )

    async def tell(self) -> None:
        await self.ask()
        self.held = await self.is_in("Held")
        self.seen = await self.snapshots()
        await asyncio.to_thread(self.world.hand.ec2.detach_volume, VolumeId=self.volume_id)
        self.done = await self.is_in("Done")
        await self.until("no volume has the mark of one that nothing names", self._all_unmarked)

    async def check(self) -> None:
        """One snapshot was there when the move was held, found by the move's UID; all are gone."""
        (warm,) = self.held["status"]["warm"]
        assert set(self.seen) == {warm}
        uid = self.held["metadata"]["uid"]
        assert hands.tags_of(self.seen[warm])["ebs-provisioner.io/move"] == f"{uid}.1"
        assert self.done["status"]["snapshot"] != warm
        await super().check()

    async def clear(self) -> None:
        if (await self.volumes()).get(self.volume_id, {}).get("Attachments"):
            ec2 = self.world.hand.ec2
            await asyncio.to_thread(ec2.detach_volume, VolumeId=self.volume_id, Force=True)
            await self.until("it is detached by hand", self._is_detached)
        await super().clear()

    async def _is_detached(self) -> bool:
        return not (await self.volumes()).get(self.volume_id, {}).get("Attachments")


class MoveByCommand(MoveAcross):
    """The same by `kubectl ebs move`, which finds what it has done when it is run again."""

    async def furnish(self) -> None:
        await super().furnish()
        claim = await self.world.api.get(self.claim_path)
        to = MoveTarget(zone=self.there)
        wish = wish_rules.Wish(self.world.namespace, self.name, to)
        self.move_name = wish_rules.name_of(wish, claim["metadata"]["uid"], ())

    @property
    def move_path(self) -> str:
        return f"{MOVES}/namespaces/{self.world.namespace}/volumemoves/{self.move_name}"

    async def tell(self) -> None:
        claim = (f"pvc/{self.world.namespace}/{self.name}", "--to-zone", self.there)
        self.unasked = await self.run_move(*claim)
        self.moved = await self.run_move(*claim, "--keep-source", "1h", "--yes")
        self.again = await self.run_move(*claim, "--yes")
        self.resumed = await self.run_move("--resume", f"{self.world.namespace}/{self.move_name}")
        await self.until("no volume has the mark of one that nothing names", self._all_unmarked)

    async def check(self) -> None:
        """The claim is moved, by one VolumeMove; the dry run for the plan is gone."""
        await super().check()
        code, out, err = self.moved
        assert code == 0, (out, err)
        assert self.unasked[0] == 1
        assert "give --yes" in self.unasked[2]
        assert f"{self.there}" in out
        assert "No pod uses the claim now." in out
        assert "[2/6] Snapshotting" in out  # it takes longest; others may pass between two looks
        assert out.splitlines()[-1].startswith(f"claim {self.world.namespace}/{self.name} has vol")
        assert (self.again[0], "has done this" in self.again[1]) == (0, True), self.again
        assert self.resumed[:2] == (0, out.splitlines(keepends=True)[-1]), self.resumed
        moves = await hands.items(self.world.api, self.move_path.rpartition("/")[0])
        mine = [each["metadata"]["name"] for each in moves if self.name in str(each["spec"])]
        assert mine == [self.move_name]


class MoveAborted(MoveStory):
    """A move is aborted while its new volume is created; everything is as it was before."""

    LEAST = frozenset({"PATCH volumemoves", "PATCH volumemoves/status", "CreateSnapshot"})

    async def tell(self) -> None:
        await self.ask()

        async def creating() -> bool:
            move = await self.world.api.get(self.move_path)
            return move.get("status", {}).get("phase") in {"Creating", "Swapping"}

        await self.until("the new volume is created", creating)
        await self.world.api.patch(self.move_path, {"spec": {"abort": True}})
        move = await self.until("the move ended", self._ended)
        self.phase = move["status"]["phase"]

    async def _ended(self) -> Json | None:
        move: Json = await self.world.api.get(self.move_path)
        return move if move["status"]["phase"] in {"Aborted", "Done"} else None

    async def check(self) -> None:
        """The claim has its old volume, and nothing else is there; or the abort came too late."""
        claim = await self.world.api.get(self.claim_path)
        assert claim["status"]["phase"] == "Bound", claim
        snapshots = await self.snapshots()
        assert snapshots == {}, snapshots
        if self.phase == "Aborted":
            assert claim["spec"]["volumeName"] == self.pv, claim
            old = await self.world.api.get(f"{PVS}/{self.pv}")
            notes = old["metadata"].get("annotations", {})
            assert not OF_MOVES & notes.keys(), notes
            volumes = await self.volumes()
            assert set(volumes) == {self.volume_id}, volumes
            named = await self.persistent_volumes()
            assert len(named) == 1, named
        self.check_log()


class MoveRefused(MoveStory):
    """A move to a zone without nodes is refused, and nothing is touched."""

    async def tell(self) -> None:
        await self.ask(to={"zone": "nowhere-1a"})
        move = await self.is_in("Refused")
        self.message = move["status"]["message"]
        self.refusals = [
            await self._refusal({"to": {"zone": self.there}}),
            await self._refusal({"claimName": "another"}),
        ]
        self.unknown = await self._made_with_a_field_of_the_future()
        self.contrary = await self._asked_in_vain({"source": "before", "zone": self.there})

    async def _made_with_a_field_of_the_future(self) -> str:
        """What the command says of a CRD that is older than it."""
        namespace = self.world.namespace
        wish = wish_rules.Wish(namespace, self.name, MoveTarget(zone=self.there))
        body = wish_rules.body(wish, f"{self.name}-future")
        body["spec"]["nobodyKnows"] = {"policy": "ScaleDown"}
        connected = KubeClient.connect(kubeconfig=str(self.world.sandbox.plane.kubeconfig))
        async with await connected as client:
            try:
                await Moves(client).make(namespace, body)
            except StorageError as error:
                return error.message
        return ""

    async def _asked_in_vain(self, to: Json) -> str:
        try:
            await self.ask(to=to)
        except ApiError as error:
            return str(error)
        return ""

    async def _refusal(self, spec: Json) -> int:
        try:
            await self.world.api.patch(self.move_path, {"spec": spec})
        except ApiError as error:
            return error.status
        return 0

    async def check(self) -> None:
        """The claim is as before, the sentence names the zone, and the move cannot be changed."""
        assert "no node with the driver is in zone nowhere-1a" in self.message
        assert self.refusals == [422, 422]
        assert "leave the rest of to out" in self.contrary
        assert "is older than this command" in self.unknown
        assert 'unknown field "spec.nobodyKnows"' in self.unknown
        claim = await self.world.api.get(self.claim_path)
        assert claim["spec"]["volumeName"] == self.pv
        assert set(await self.volumes()) == {self.volume_id}
        assert await self.snapshots() == {}
        self.check_log()


class MoveToCsi(MoveStory):
    """A PersistentVolume of the in-tree plugin becomes one in CSI form, of the same volume."""

    LEAST = WITHOUT_COPY
    # Kubernetes has migrated the plugin to the driver of this name only, and that has one leader.
    _alone: ClassVar[asyncio.Lock] = asyncio.Lock()
    _is_alone = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.slot = replace(self.slot, driver=EBS_DRIVER)

    def named_volume(self) -> Json:
        handle = f"aws://{self.zone}/{self.volume_id}"
        return {"awsElasticBlockStore": {"volumeID": handle, "fsType": "ext4"}}

    async def furnish(self) -> None:
        await self._alone.acquire()
        self._is_alone = True
        await epochs.of_ours(self.world.api)
        await super().furnish()
        path = f"{PVS}/{self.pv}"
        made_by = {"metadata": {"annotations": {PROVISIONED_BY: IN_TREE_DRIVER}}}
        await self.world.api.patch(path, made_by)
        migrated = {PROVISIONED_BY: IN_TREE_DRIVER, MIGRATED_TO: EBS_DRIVER}
        await self.object_when(
            "the volume is migrated",
            path,
            lambda found: found["metadata"]["annotations"].items() >= migrated.items(),
        )

    async def tell(self) -> None:
        await self.ask(to={"form": "csi"}, keepSource="0h")
        await self.is_in("Done")
        await self.is_gone(f"{PVS}/{self.pv}")

    async def check(self) -> None:
        """One claim, one PersistentVolume, one volume: the same one; nothing was copied."""
        claim = await self.world.api.get(self.claim_path)
        assert claim["status"]["phase"] == "Bound", claim
        assert claim["metadata"]["labels"] == LABEL
        assert claim["metadata"]["annotations"].items() >= NOTE.items()
        (new,) = await self.persistent_volumes()
        spec = new["spec"]
        assert spec["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert spec["csi"]["driver"] == EBS_DRIVER
        assert spec["csi"]["volumeHandle"] == self.volume_id
        assert spec["csi"]["fsType"] == "ext4"
        assert spec["persistentVolumeReclaimPolicy"] == "Delete"
        assert new["metadata"]["annotations"][PROVISIONED_BY] == EBS_DRIVER
        assert set(await self.volumes()) == {self.volume_id}
        assert await self.snapshots() == {}
        assert await self.calls("CreateSnapshot", about=self.volume_id) == []
        assert len(await self.made()) == 0
        self.check_log()

    async def clear(self) -> None:
        if self._is_alone:
            try:
                await super().clear()
            finally:
                self._alone.release()
