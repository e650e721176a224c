"""A pod that copies a claim's files, or checks its new volume: made, watched, and removed again.

Its claims and PersistentVolumes are made before it, and removed after it.

All of them have names that follow from the move's UID, so that a request which is sent twice, or
whose reply is lost, makes one object. They are looked at as the API server has them now.
"""

from collections.abc import Mapping

import msgspec
import structlog

from provisioner import clock
from provisioner.controller.moving import patience_rules
from provisioner.controller.moving.copying import plan_rules, rules
from provisioner.controller.moving.patience_rules import Patience
from provisioner.controller.moving.phase_rules import Await, GoOn, Undo, Use
from provisioner.controller.moving.record import (
    CLAIM_DOCUMENTS,
    MoveRecord,
    suppress_exists,
    suppress_gone,
)
from provisioner.controller.shared.services import Services
from provisioner.kube.client import find
from provisioner.kube.resources import CLAIMS, CONTROLLED_PODS, COPY_PODS, PODS, Resource
from provisioner.model.copy_pod import CopyPod
from provisioner.model.document import Document
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume
from provisioner.model.volume_move import Phase, VolumeMove

_POD_DOCUMENTS = Resource("", "v1", PODS.plural, PODS.kind, Document)

log = structlog.get_logger(__name__)


class Copier:
    """The pods of moves. All raise ``KubeError``."""

    def __init__(self, services: Services, record: MoveRecord, patience: Patience) -> None:
        self._client = services.client
        self._caches = services.caches
        self._settings = services.settings
        self._record = record
        self._patience = patience
        # Of these it is certain that nothing was sent that is not known.
        self._certain: set[str] = set()

    def begin(self, uid: str) -> None:
        """This process has written the phase: nothing was sent before."""
        self._certain.add(uid)

    def forget(self, uid: str) -> None:
        """The move has ended."""
        self._certain.discard(uid)

    def may_come(self, move: VolumeMove) -> bool:
        """Whether its pod or that pod's objects may come yet, by requests of another process."""
        began = rules.is_over(move) or move.told.undone_from in {Phase.CHECKING, Phase.COPYING}
        return began and move.uid not in self._certain

    async def why_not(self, move: VolumeMove, old: Document | None, volume: Volume | None) -> str:
        """Why no pod can do what is asked, in one sentence; "" if one can, or if none has to."""
        if old is None or volume is None:
            return ""
        copies = plan_rules.is_asked(move, volume, old)
        if not copies and (move.goes_back or not move.spec.check):
            return ""
        image, job = await self._image(), rules.COPY if copies else rules.CHECK
        if not image:
            return plan_rules.NO_IMAGE if copies else plan_rules.NO_IMAGE_TO_CHECK
        body, namespace = rules.pod_body(move, image, job), move.metadata.namespace
        what = "copy the files" if copies else "check the new volume"
        try:
            with suppress_exists():
                await self._client.create(COPY_PODS, body, namespace, dry_run=True)
        except KubeError as error:
            if error.outcome is Outcome.UNKNOWN or error.reason is not Reason.FORBIDDEN:
                raise
            return (
                f"no pod can {what}: {error.message}; allow it in namespace {namespace} "
                "(Pod Security level baseline, ResourceQuota) for the time of the move"
            )
        return ""

    async def _image(self) -> str:
        """The image of the pod, "" if it is not known."""
        if self._settings.copy_image or not self._settings.own_pod:
            return self._settings.copy_image
        namespace, _, name = self._settings.own_pod.partition("/")
        own = await find(self._client, _POD_DOCUMENTS, name, namespace)
        return rules.image_of(own) if own is not None else ""

    async def advance(self, move: VolumeMove) -> Await | GoOn | Undo | None:
        """Take one step.

        Returns:
            GoOn once the pod has done its job, and it is gone; None if something was done.
        """
        seen = await self._look(move)
        if rules.is_over(move):
            return rules.came(move, seen.strangers) or await self._remove(move, seen)
        try:
            done = await self._take(move, rules.next_step(move, seen), seen)
        except KubeError as error:
            if error.outcome is Outcome.UNKNOWN:
                self._certain.discard(move.uid)
            raise
        if rules.has_started(seen.pod):
            self._patience.forget(move.uid)
        elif isinstance(done, Await) and self._patience.is_out(move, clock.now_s()):
            return patience_rules.undone(done.message)
        return done

    async def _take(
        self, move: VolumeMove, step: rules.PodStep, seen: rules.Seen
    ) -> Await | Undo | None:
        match step:
            case rules.MakeVolume(end=end):
                return await self._make_volume(move, end)
            case rules.MakeClaim(end=end):
                await self._make_claim(move, end, seen.volumes)
            case rules.MakePod():
                body = rules.pod_body(move, await self._image(), rules.job_of(move))
                with suppress_exists():
                    await self._client.create(COPY_PODS, body, move.metadata.namespace)
            case rules.RemovePod() if seen.pod is not None:
                log.info("the pod of a move has failed", pod=seen.pod.name)
                await self._delete_pod(seen.pod)
            case rules.Copied(report=report):
                await self._record.write(move, {"copied": msgspec.to_builtins(report)})
            case rules.Checked(report=found):
                await self._record.write(move, {"checked": msgspec.to_builtins(found)})
            case Await() | Undo():
                return step
        return None

    async def remove(self, move: VolumeMove) -> Await | None:
        """Remove the pod and its objects, but no volume; None once nothing is left."""
        left = await self._remove(move, await self._look(move))
        return left if isinstance(left, Await) else None

    async def _look(self, move: VolumeMove) -> rules.Seen:
        namespace, ends = move.metadata.namespace, rules.job_of(move).ends
        volumes = {
            end: await self._record.persistent_volume(rules.volume_name(move, end)) for end in ends
        }
        claims: dict[str, Document | None] = {
            end: await find(self._client, CLAIM_DOCUMENTS, rules.claim_name(move, end), namespace)
            for end in ends
        }
        pod = await find(self._client, COPY_PODS, move.pod_name, namespace)
        return rules.Seen(volumes, claims, pod, await self._strangers(move, pod))

    async def _strangers(self, move: VolumeMove, ours: CopyPod | None) -> list[Use]:
        """Other pods that use a claim of ours, or that whose files are copied."""
        namespace = move.metadata.namespace
        ends = rules.job_of(move).ends
        keys = {f"{namespace}/{rules.claim_name(move, end)}" for end in ends}
        keys |= {move.claim_key} if rules.FROM in ends else set()
        uid = ours.uid if ours is not None and rules.is_ours(move, ours) else ""
        found = await self._client.list(CONTROLLED_PODS, namespace=namespace)
        return [
            Use(pod.name)
            for pod in found.items
            if pod.node_name and pod.uid != uid and keys.intersection(pod.claim_keys)
        ]

    async def _make_volume(self, move: VolumeMove, end: str) -> Undo | None:
        source = move.source
        old = await self._record.volume_document(source.persistent_volume)
        new = await self._record.volume_document(move.persistent_volume_name)
        if old is None or new is None:
            return Undo(
                f"the old or the new PersistentVolume is gone: no pod {rules.job_of(move).does}"
            )
        await self._record.create_volume_object(rules.volume_body(move, end, old, new))
        return None

    async def _make_claim(
        self, move: VolumeMove, end: str, volumes: Mapping[str, PersistentVolume | None]
    ) -> None:
        volume = volumes[end]
        if volume is not None:
            body = rules.claim_body(move, end, volume)
            with suppress_exists():
                made = await self._client.create(CLAIMS, body, move.metadata.namespace)
                self._caches.claims.observe(made)

    async def _remove(self, move: VolumeMove, seen: rules.Seen) -> Await | GoOn:
        """Ask for the end of what is there; the volumes last, which wait for the detach."""
        pod = seen.pod
        if pod is not None and rules.is_ours(move, pod):
            await self._delete_pod(pod)
            return rules.leftover(move, seen)
        claims = [each for each in seen.claims.values() if each and rules.is_ours(move, each)]
        for claim in claims:
            if not claim.deleting:
                await self._delete_claim(claim)
        if claims:
            return rules.leftover(move, seen)
        for end, volume in seen.volumes.items():
            ours = volume is not None and rules.is_our_volume(move, end, volume)
            if ours and volume is not None and not volume.deleting:
                with suppress_gone():
                    await self._record.remove_volume_object(volume)
        return rules.leftover(move, seen)

    async def _delete_pod(self, pod: CopyPod) -> None:
        if not pod.deleting:
            with suppress_gone():
                await self._client.delete(
                    PODS, pod.name, namespace=pod.metadata.namespace, uid=pod.uid
                )

    async def _delete_claim(self, claim: Document) -> None:
        with suppress_gone():
            await self._client.delete(
                CLAIMS, claim.name, namespace=claim.metadata.namespace, uid=claim.uid
            )
