"""What a move writes to the API server: its status, the hold, and the claim that is born again."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
from msgspec import to_builtins

from provisioner.controller.moving import freshness_rules, phase_rules
from provisioner.controller.moving.pace import LOOK_AGAIN_S, phase_age_s
from provisioner.controller.moving.phase_rules import SeenClaim, Undo, Use
from provisioner.controller.shared.services import Services
from provisioner.kube.client import Patch, find, patch_status
from provisioner.kube.events import Regarding
from provisioner.kube.resources import (
    CLAIMS,
    CONTROLLED_PODS,
    PERSISTENT_VOLUMES,
    RESOURCE_QUOTAS,
    VOLUME_MOVES,
    Resource,
)
from provisioner.kube.shared_reads import SharedReads
from provisioner.model.decision import AGAIN, Later, Next
from provisioner.model.document import Document
from provisioner.model.errors import CHANGED_MEANWHILE, KubeError, Reason
from provisioner.model.names import HELD_FOR_MOVE, LEFT_BY_MOVE, POLICY_BEFORE_MOVE
from provisioner.model.persistent_volume import PROVISIONER_FINALIZER, PersistentVolume
from provisioner.model.resource_quota import ResourceQuota
from provisioner.model.volume_move import API_VERSION, FINALIZER, KIND, Phase, VolumeMove
from provisioner.model.workload import ControlledPod

Json = dict[str, Any]
CLAIM_DOCUMENTS = Resource("", "v1", CLAIMS.plural, CLAIMS.kind, Document)
VOLUME_DOCUMENTS = Resource("", "v1", PERSISTENT_VOLUMES.plural, PERSISTENT_VOLUMES.kind, Document)
_WORTH_TELLING_S = 10.0
_ENDING = "being terminated"  # of a namespace; Kubernetes 1.36 plugin NamespaceLifecycle
# What a try says of nothing: a quota counts the claim beside itself, and a webhook is not asked.
# Source: Kubernetes 1.36 plugins ResourceQuota and webhook/dispatcher.
_SAYS_NOTHING = ("exceeded quota", "dry run")
# Where pods stop there is an event of these, whatever they say: of the beginning of the stop, and
# of the moment from which the move cannot be aborted any more.
_TOLD = frozenset({Phase.HELD, Phase.SWAPPING})

log = structlog.get_logger(__name__)


@contextmanager
def suppress_gone() -> Iterator[None]:
    """What was changed or removed meanwhile is no failure: the next pass reads what there is."""
    try:
        yield
    except KubeError as error:
        if error.reason not in CHANGED_MEANWHILE:
            raise


@contextmanager
def suppress_exists() -> Iterator[None]:
    """What has the name already is looked at in the next pass."""
    try:
        yield
    except KubeError as error:
        if error.reason is not Reason.OBJECT_EXISTS:
            raise


def _exactly(found: PersistentVolume) -> Json:
    """Has the API server refuse the write to any other version."""
    return {"uid": found.uid, "resourceVersion": found.metadata.resource_version}


async def broken(record: "MoveRecord", move: VolumeMove) -> Undo | None:
    """Whether the claim is not any more what was planned for; see ``phase_rules.broken``.

    Raises:
        KubeError: it cannot be read.
    """
    why = phase_rules.broken(move.source, await record.known_claim(move))
    return why and phase_rules.broken(move.source, await record.claim(move))


class MoveRecord:
    """Reads objects as the API server has them now, and writes them. All raise ``KubeError``.

    What is ``known`` comes from the caches, which may be an hour old, but have all that this
    process has written. It is enough to find that nothing is to be done, and for a write that is
    bound to the very version; what it shows to be missing or changed is read before it is believed.
    After a failure, such as a lost reply or a conflict, a move is in ``doubt``: then all is read.
    """

    def __init__(self, services: Services) -> None:
        self._client = services.client
        self._caches = services.caches
        self._events = services.events
        self._driver = services.settings.driver
        self._trusted: set[str] = set()  # moves that are not in doubt
        self._pods: SharedReads[list[ControlledPod]] = SharedReads()

    def trust(self, uid: str) -> None:
        """A pass over a move has gone well: caches will do for the next one."""
        self._trusted.add(uid)

    def is_trusted(self, uid: str) -> bool:
        """Whether a move is in no doubt."""
        return uid in self._trusted

    def doubt(self, uid: str) -> None:
        """Have all that concerns a move read anew, until it is trusted again."""
        self._trusted.discard(uid)

    async def known_move(self, uid: str) -> VolumeMove | None:
        """The move; as it is now if it is in doubt, or if what follows is bound to no version."""
        known = self._caches.move(uid)
        if known is None or (uid in self._trusted and not known.is_to_be_read):
            return known
        return await self.move(uid)

    def written_move(self, uid: str) -> VolumeMove | None:
        """The move as it was read or written last, or newer."""
        return self._caches.move(uid)

    async def known_claim(self, move: VolumeMove) -> SeenClaim | None:
        """Whatever has the name of the move's claim."""
        known = self._caches.claims.get(move.claim_key) if move.uid in self._trusted else None
        return known or await self.claim(move)

    async def known_volume(self, move: VolumeMove, name: str) -> PersistentVolume | None:
        """A PersistentVolume."""
        known = self._caches.persistent_volumes.get(name) if move.uid in self._trusted else None
        return known or await self.persistent_volume(name)

    async def move(self, uid: str) -> VolumeMove | None:
        """The move, as it is now."""
        cached = self._caches.move(uid)
        if cached is None:
            return None
        found = await find(self._client, VOLUME_MOVES, cached.name, cached.metadata.namespace)
        if found is None or found.uid != uid:
            return None
        self._caches.moves.observe(found)
        return found

    async def claim(self, move: VolumeMove) -> Document | None:
        """Whatever has the name of the move's claim."""
        return await find(
            self._client, CLAIM_DOCUMENTS, move.spec.claim_name, move.metadata.namespace
        )

    async def volume_document(self, name: str) -> Document | None:
        """A PersistentVolume, with all of its spec."""
        return await find(self._client, VOLUME_DOCUMENTS, name) if name else None

    async def volume_like(self, document: Document | None) -> PersistentVolume | None:
        """The same PersistentVolume with its status, in the same version or a newer one."""
        if document is None:
            return None
        known = self._caches.persistent_volumes.get(document.name)
        version = document.metadata.resource_version
        if known is not None and known.metadata.resource_version == version:
            return known
        return await self.persistent_volume(document.name)

    async def persistent_volume(self, name: str) -> PersistentVolume | None:
        """A PersistentVolume."""
        found = await find(self._client, PERSISTENT_VOLUMES, name) if name else None
        if found is not None:
            self._caches.persistent_volumes.observe(found)
        return found

    async def pods(self, move: VolumeMove) -> list[ControlledPod]:
        """The pods that use the claim, or one that is moved with it; also those that have ended.

        So that moves of one owner's claims scale it as far as all of them need, and only once.
        """
        namespace = move.metadata.namespace
        # Once for all moves that ask at the same time: 2,000 pods take 28 ms to decode.
        found = await self._pods.read(namespace, partial(self._all_pods, namespace))
        return [pod for pod in found if move.claim_keys & {*pod.claim_keys}]

    async def _all_pods(self, namespace: str) -> list[ControlledPod]:
        return (await self._client.list(CONTROLLED_PODS, namespace=namespace)).items

    async def uses(self, move: VolumeMove) -> list[Use]:
        """The pods that have a node, or none for which the scheduler could still find one."""
        pods = await self.pods(move)
        return [Use(pod.name, pod.has_ended) for pod in pods if pod.node_name]

    async def advance(
        self, move: VolumeMove, phase: Phase, message: str = "", **fields: Any
    ) -> VolumeMove:
        """Write the next phase, and with it what it needs."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        conditions = to_builtins(move.conditions_in(phase, message, since))
        status = {"phase": phase, "message": message, "phaseSince": since, "conditions": conditions}
        status |= fields
        written = await self.write(move, status)
        log.info("move", phase=phase.value, message=message)
        stops = move.told.plan.stops if move.told.plan is not None else ()
        if message or (stops and phase in _TOLD):
            self._events.record(
                self.regarding(move),
                warning=phase in (Phase.REFUSED, Phase.ABORTING),
                reason=f"Move{phase.value}",
                message=message or f"claim {move.claim_key}: {phase.value}",
            )
        return written

    async def tell(self, move: VolumeMove, message: str, **fields: Any) -> VolumeMove:
        """Write for what it waits, if that is news."""
        told = move.told
        known = {
            "message": told.message,
            "progressPercent": told.progress_percent,
            "progressBytes": told.progress_bytes,
            "totalBytes": told.total_bytes,
        }
        status = {"message": message, **fields}
        if all(known.get(key) == value for key, value in status.items()):
            return move
        return await self.write(move, status)

    async def wait(self, move: VolumeMove, message: str, **fields: int) -> Later:
        """Look again soon; what is over within seconds is not worth a write."""
        if phase_age_s(move) >= _WORTH_TELLING_S:
            await self.tell(move, message, **fields)
        return Later(LOOK_AGAIN_S)

    async def abort(self, move: VolumeMove, why: Undo) -> Next:
        """Begin to undo a move."""
        await self.advance(move, Phase.ABORTING, why.message, undoneFrom=move.phase)
        return AGAIN

    async def announce(
        self, move: VolumeMove, message: str, *, reason: str, warning: bool, **fields: Any
    ) -> VolumeMove:
        """Write what is done next and what it needs, and record it as an event."""
        written = await self.write(move, {"message": message, **fields})
        self._events.record(self.regarding(move), warning=warning, reason=reason, message=message)
        return written

    async def write(self, move: VolumeMove, status: Mapping[str, Any]) -> VolumeMove:
        """Patch the status of exactly the version that was read."""
        written = await patch_status(self._client, VOLUME_MOVES, move, status)
        self._caches.moves.observe(written)
        return written

    def regarding(self, move: VolumeMove) -> Regarding:
        """What events are about."""
        return Regarding.of(move, KIND, API_VERSION)

    async def keep(self, move: VolumeMove) -> VolumeMove:
        """Have the move stay until it is undone or finished."""
        if FINALIZER in move.finalizers:
            return move
        return await self._finalizers(move, [*move.finalizers, FINALIZER])

    async def release(self, move: VolumeMove) -> None:
        """Let the move go."""
        if FINALIZER in move.finalizers:
            left = [each for each in move.finalizers if each != FINALIZER]
            with suppress_gone():
                await self._finalizers(move, left)

    async def _finalizers(self, move: VolumeMove, finalizers: Sequence[str]) -> VolumeMove:
        meta = move.metadata
        body = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "finalizers": list(finalizers),
            }
        }
        written = await self._client.patch(
            VOLUME_MOVES, move.name, body, kind=Patch.MERGE, namespace=meta.namespace
        )
        self._caches.moves.observe(written)
        return written

    async def hold(
        self, move: VolumeMove, found: PersistentVolume, driver: str
    ) -> PersistentVolume:
        """Have a volume attached nowhere; the flow of attachments reads it from our cache."""
        metadata = _exactly(found) | freshness_rules.held(found, move, driver)
        return await self._patch_volume(found, {"metadata": metadata})

    async def let_go(
        self, move: VolumeMove, found: PersistentVolume | None, policy: str = ""
    ) -> None:
        """The opposite, unless it is held for another move.

        Exactly the version that was read is changed, so that what another process had sent before
        does not come after it. The attacher's mark that the hold has taken away comes back.

        Args:
            move: whose notes on the PersistentVolume are removed.
            found: the PersistentVolume.
            policy: the reclaim policy that it gets back, if ``retain`` has set another.
        """
        notes = found.annotations if found is not None else {}
        ours = {HELD_FOR_MOVE, POLICY_BEFORE_MOVE} & notes.keys()
        if found is None or not ours or notes.get(HELD_FOR_MOVE, move.key) != move.key:
            return
        body: Json = {
            "metadata": _exactly(found) | freshness_rules.released(found, self._driver, ours)
        }
        if policy and POLICY_BEFORE_MOVE in ours:
            body["spec"] = {"persistentVolumeReclaimPolicy": policy}
        await self._patch_volume(found, body)

    async def leave(self, move: VolumeMove, found: PersistentVolume | None) -> None:
        """Make one that is not held another version: what a process before us has sent is late.

        Without it, a hold that was under way when its sender died would come after the end of the
        move, and stay for ever. Nothing of it is left.
        """
        if found is None or HELD_FOR_MOVE in found.annotations:
            return
        if LEFT_BY_MOVE not in found.annotations:
            note = {"annotations": {LEFT_BY_MOVE: move.key}}
            found = await self._patch_volume(found, {"metadata": _exactly(found) | note})
        gone = {"annotations": {LEFT_BY_MOVE: None}}
        await self._patch_volume(found, {"metadata": _exactly(found) | gone})

    async def is_to_be_attached(self, found: PersistentVolume) -> bool:
        """Whether Kubernetes wants it attached to a node."""
        await self._caches.certain(self._caches.attachments)
        return bool(self._caches.attachments.keyed("persistent_volume", found.name))

    def is_attached(self, persistent_volume: str) -> bool:
        """Whether a node is known to have it."""
        found = self._caches.attachments.keyed("persistent_volume", persistent_volume)
        return any(each.attached for each in found)

    async def retain(self, found: PersistentVolume) -> PersistentVolume:
        """Set Retain, and note in the same write which policy it had; see ``let_go``.

        The provisioner's finalizer is for ``Delete`` alone: it goes with it, without a write more.
        """
        notes = {POLICY_BEFORE_MOVE: found.reclaim_policy}
        spec = {"persistentVolumeReclaimPolicy": "Retain"}
        metadata = _exactly(found) | {"annotations": notes}
        if PROVISIONER_FINALIZER in found.finalizers:
            left = [each for each in found.finalizers if each != PROVISIONER_FINALIZER]
            metadata["finalizers"] = left
        return await self._patch_volume(found, {"metadata": metadata, "spec": spec})

    async def set_policy(self, found: PersistentVolume, policy: str) -> None:
        """Set the reclaim policy of the very PersistentVolume that was read."""
        spec = {"persistentVolumeReclaimPolicy": policy}
        await self._patch_volume(found, {"metadata": _exactly(found), "spec": spec})

    async def _patch_volume(self, found: PersistentVolume, body: Json) -> PersistentVolume:
        written = await self._client.patch(PERSISTENT_VOLUMES, found.name, body, kind=Patch.MERGE)
        self._caches.persistent_volumes.observe(written)
        return written

    async def keep_claim(self, move: VolumeMove, claim: SeenClaim) -> None:
        """Make it another version: a deletion that a process before us has sent comes too late."""
        meta = {"uid": claim.uid, "resourceVersion": claim.metadata.resource_version}
        body = {"metadata": meta | {"annotations": {LEFT_BY_MOVE: move.key}}}
        namespace = move.metadata.namespace
        await self._client.patch(
            CLAIMS, move.spec.claim_name, body, kind=Patch.MERGE, namespace=namespace
        )

    async def remove_claim(self, move: VolumeMove, uid: str, resource_version: str) -> None:
        """Delete exactly this version of a claim; a conflict if there is another one by now."""
        await self._client.delete(
            CLAIMS,
            move.spec.claim_name,
            namespace=move.metadata.namespace,
            uid=uid,
            resource_version=resource_version,
        )

    async def quotas(self, move: VolumeMove) -> Sequence[ResourceQuota]:
        """The quotas of its namespace."""
        return (await self._client.list(RESOURCE_QUOTAS, namespace=move.metadata.namespace)).items

    async def may_create_claim(self, move: VolumeMove, recorded: str) -> bool:
        """Ask the API server whether the claim could be created again; nothing is kept.

        Its name is taken, so this is always refused, at the earliest once all of admission lets it
        in; a quota may even count the claim twice.

        Returns:
            False if its namespace is being deleted, and takes nothing any more.

        Raises:
            KubeError: admission refuses it (a LimitRange or a policy that is younger than the
                claim, for instance), or does not answer.
        """
        body = phase_rules.recreated(move, recorded)
        try:
            await self._client.create(CLAIMS, body, move.metadata.namespace, dry_run=True)
        except KubeError as error:
            if error.reason is Reason.FORBIDDEN and _ENDING in error.message:
                return False
            says_nothing = any(each in error.message for each in _SAYS_NOTHING)
            if error.reason is not Reason.OBJECT_EXISTS and not says_nothing:
                raise
        return True

    async def create_claim(self, move: VolumeMove) -> bool:
        """Create the claim again, unless somebody was faster.

        Returns:
            False if nothing can be created any more: the namespace, and the move with it, goes.
        """
        body = phase_rules.recreated(move, move.told.claim)
        try:
            made = await self._client.create(CLAIMS, body, move.metadata.namespace)
        except KubeError as error:
            if move.deleting and error.reason is Reason.FORBIDDEN and _ENDING in error.message:
                return False
            if error.reason is not Reason.OBJECT_EXISTS:
                raise
        else:
            self._caches.claims.observe(made)
        return True

    async def try_volume_object(self, move: VolumeMove) -> None:
        """Have the API server say what is wrong with the new PersistentVolume, and keep nothing."""
        body = move.told.persistent_volume or {}
        with suppress_exists():
            await self._client.create(PERSISTENT_VOLUMES, body, dry_run=True)

    async def create_volume_object(self, body: Json) -> None:
        """Create the new PersistentVolume, if there is none."""
        with suppress_exists():
            made = await self._client.create(PERSISTENT_VOLUMES, body)
            self._caches.persistent_volumes.observe(made)

    async def remove_volume_object(self, found: PersistentVolume) -> None:
        """Delete exactly this version of a PersistentVolume."""
        await self._client.delete(
            PERSISTENT_VOLUMES,
            found.name,
            uid=found.uid,
            resource_version=found.metadata.resource_version,
        )
