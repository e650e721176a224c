"""Creation: carry an attempt on until its persistent volume is saved.

An attempt outlives its claim: once CreateVolume was sent, the volume is made, saved and then
released like any other, because a volume that no object names would be billed forever.
"""

import asyncio
import random
from collections import Counter, UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

import structlog

from provisioner import clock
from provisioner.classes import iops_rules
from provisioner.controller.claims.events import ClaimEvents
from provisioner.controller.placement.refused_places import RefusedPlaces
from provisioner.controller.provisioning import creation_rules
from provisioner.controller.provisioning import persistent_volume_rules as pv_manifest
from provisioner.controller.provisioning.creation_rules import Attempt
from provisioner.controller.provisioning.plan_rules import Plan
from provisioner.controller.shared.services import Services
from provisioner.ec2.look_rules import Asked
from provisioner.ec2.usage import Usage
from provisioner.ec2.volumes import Volumes
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.model.claim import Claim
from provisioner.model.consistency import LOOK_AGAIN_S
from provisioner.model.decision import SETTLED, Later, Next, Settled
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.names import UNCLAIMED
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume, VolumeState

REPORT_AFTER_S = 5.0  # a claim that is provisioned sooner needs no event before
# EC2's median is 1.5 s (aws-ebs-csi-driver #2021).
_CREATION: Asked[Volume] = Asked(
    "a volume", 1.25, lambda seen: seen.state is not VolumeState.CREATING
)

log = structlog.get_logger(__name__)


class _AbandonedError(Exception):
    """The claim is gone, and nothing was sent for it."""


@dataclass(frozen=True, slots=True)
class Objects:
    """What is made of a volume, and for how long somebody wants it.

    Attributes:
        is_going: whether nobody wants the volume of a UID any more.
        body: the PersistentVolume to POST.
        conflict: what is wrong with one that has its name already, None if it is the same.
    """

    is_going: Callable[[str], bool]
    body: Callable[[Plan, Volume], Mapping[str, Any]]
    conflict: Callable[[PersistentVolume, Plan, Volume], StorageError | None]


def of_claims(services: Services, identity: str) -> Objects:
    """The PersistentVolumes of claims that ask for new ones."""
    caches, driver = services.caches, services.settings.driver

    def is_going(uid: str) -> bool:
        claim = caches.claim(uid)
        return claim is None or claim.deleting

    def body(plan: Plan, volume: Volume) -> Mapping[str, Any]:
        region = caches.registered.have_region_label(volume.zone)
        return pv_manifest.manifest(
            plan, volume, driver=driver, identity=identity, labels_region=region
        )

    return Objects(is_going, body, partial(pv_manifest.conflict, driver=driver))


class Attempts(UserDict[str, Attempt]):
    """The attempts under way, by claim UID.

    From which sources they are made is counted: in a restore of thousands, it is asked for each.
    """

    def __init__(self) -> None:
        self._sources: Counter[str] = Counter()
        super().__init__()

    def __setitem__(self, uid: str, attempt: Attempt) -> None:
        """Keep an attempt, in place of the one before."""
        self.pop(uid, None)
        self._sources[attempt.plan.claim.source_key] += 1
        super().__setitem__(uid, attempt)

    def __delitem__(self, uid: str) -> None:
        """Forget an attempt."""
        key = self.data.pop(uid).plan.claim.source_key
        self._sources[key] -= 1
        if not self._sources[key]:
            del self._sources[key]

    def are_made_from(self, source_key: str) -> bool:
        """Whether any of them is made from a source, given as ``Claim.source_key``."""
        return source_key in self._sources


class Creations:
    """The attempts under way, by claim UID.

    ``wake`` queues a claim; ``volumes``: EC2, if not as others ask it; ``most_pause_s``: so long it
    waits at most after it was given up. Attributes: ``attempts``.
    """

    def __init__(
        self,
        services: Services,
        *,
        objects: Objects,
        events: ClaimEvents,
        refused_places: RefusedPlaces,
        wake: Callable[[str], None],
        volumes: Volumes | None = None,
        most_pause_s: float = creation_rules.MOST_PAUSE_S,
    ) -> None:
        self._objects = objects
        self._client = services.client
        self._caches = services.caches
        self._volumes = volumes or services.volumes
        self._lookups = services.lookups
        self._watcher = services.watcher
        self._unclaimed = services.unclaimed
        self._events = events
        self._metrics = services.metrics
        self._refused_places = refused_places
        self._wake = wake
        self._most_pause_s = most_pause_s
        self.usage = Usage(services.volumes)
        self.attempts = Attempts()
        self._next_tokens: dict[str, int] = {}  # of claims whose first ones EC2 has burned
        self._given_up: Counter[str] = Counter()  # how often, unless for another zone

    def has_made(self, uid: str) -> bool:
        """Whether EC2 has made a claim's volume, and its persistent volume is not saved yet."""
        attempt = self.attempts.get(uid)
        return attempt is not None and attempt.volume is not None

    def forget(self, uid: str) -> None:
        """The claim is bound or gone."""
        self._next_tokens.pop(uid, None)
        self._given_up.pop(uid, None)

    def abandon(self, uid: str) -> str:
        """Nobody goes on with an attempt; the id of its volume, "" if none is known."""
        attempt = self.attempts.pop(uid, None)
        self.forget(uid)
        if attempt is None or attempt.volume is None:
            return ""
        self._forget_volume(uid, attempt)
        return attempt.volume.volume_id

    def begin(self, uid: str, attempt: Attempt) -> None:
        """Start an attempt; an event says so if it takes long, wherever it waits."""
        if attempt.volume is None and uid in self._next_tokens:
            attempt = creation_rules.under_token(attempt, self._next_tokens[uid])
        self.attempts[uid] = attempt
        if attempt.volume is not None:
            self._made(uid, attempt, attempt.volume)
        asyncio.get_running_loop().call_later(REPORT_AFTER_S, self._report_if_slow, uid)

    def _report_if_slow(self, uid: str) -> None:
        attempt = self.attempts.get(uid)
        if attempt is not None:
            self._events.in_progress(attempt.plan.claim)

    async def advance(self, uid: str) -> Next | creation_rules.GiveUp:
        """Carry steps out until one waits, or all is done.

        Raises:
            StorageError: it goes on after a while.
        """
        done: Attempt | Next | creation_rules.GiveUp
        while True:
            attempt, seen, missing_for_s = self._shown(uid)
            step = creation_rules.next_step(attempt, seen, missing_for_s)
            match step:
                case creation_rules.Save(volume=volume):
                    await self._save(uid, attempt, volume)
                    return SETTLED
                case creation_rules.Await():
                    return self._await(attempt, missing_for_s)
                case creation_rules.GiveUp():
                    self._forget_volume(uid, attempt)
                    return self._give_up(uid, step)
                case creation_rules.Discard():
                    return await self._throw_away(uid, attempt, step)
                case creation_rules.Send() if self._is_abandoned(uid, attempt):
                    self.attempts.pop(uid, None)
                    return SETTLED
                case creation_rules.Send():
                    done = await self._send(uid, attempt)
                case creation_rules.LookUp():
                    done = await self._look_up(uid, attempt)
                case _:
                    assert_never(step)
            if not isinstance(done, Attempt):
                return done

    def _shown(self, uid: str) -> tuple[Attempt, Volume | None, float | None]:
        """The attempt, its volume as EC2 describes it, and since when EC2 has not known it."""
        attempt = self.attempts[uid]
        if attempt.volume is None:
            return attempt, None, None
        sighting = self._watcher.sighting(attempt.volume.volume_id)
        if sighting is None or sighting.found is None:
            return attempt, None, sighting.missing_for_s if sighting else None
        if not attempt.is_shown:
            attempt = self._keep(uid, replace(attempt, is_shown=True))
        return attempt, sighting.found, None

    def _await(self, attempt: Attempt, missing_for_s: float | None) -> Next:
        made = attempt.volume
        trouble = self._watcher.trouble_with(made.volume_id) if made else None
        trouble = trouble or creation_rules.late(attempt, missing_for_s)
        if trouble is not None:
            self._events.failed(attempt.plan.claim, trouble, once=True)
        return creation_rules.look_again(attempt, missing_for_s)

    async def _throw_away(
        self, uid: str, attempt: Attempt, step: creation_rules.Discard
    ) -> creation_rules.GiveUp:
        """Delete a volume that cannot serve its claim; another one is made after a while."""
        await self._discard(attempt.plan.claim, step.volume, step.then.error.message)
        self._forget_volume(uid, attempt)
        return self._give_up(uid, step.then)

    async def _send(self, uid: str, attempt: Attempt) -> Attempt | Settled | creation_rules.GiveUp:
        if creation_rules.is_token_old(attempt, clock.now_s()):
            return self._keep(uid, creation_rules.look_up_first(attempt, clock.now_s()))
        # Hundreds may be refused again and again, at a full quota: first tries go first.
        is_repeated = uid in self._given_up or attempt.token_number > 1
        volumes = self._volumes.patient if is_repeated else self._volumes
        try:
            volume = await volumes.create(
                attempt.plan.request, gate=lambda: self._still_wanted(uid, attempt)
            )
        except _AbandonedError:
            self.attempts.pop(uid, None)
            return SETTLED
        except asyncio.CancelledError:
            self.attempts[uid] = creation_rules.after_cancel(attempt)
            raise
        except StorageError as error:
            told = await self.usage.explained(error, attempt.plan.request.volume_type)
            verdict = creation_rules.after_failure(attempt, told, clock.now_s())
            return self._fail(uid, verdict)
        request = attempt.plan.request
        self._refused_places.made(request.place, request.volume_type)
        # An answer of CreateVolume need not list the tags that it has written.
        self._unclaimed.note(volume.volume_id)
        return self._made(uid, attempt, volume)

    def _still_wanted(self, uid: str, attempt: Attempt) -> None:
        """Check once more after the limiter has granted the call: that may have taken minutes."""
        if self._is_abandoned(uid, attempt):
            raise _AbandonedError

    async def _look_up(self, uid: str, attempt: Attempt) -> Attempt | Later | creation_rules.GiveUp:
        name = attempt.plan.persistent_volume_name
        with self._events.reporting(attempt.plan.claim):
            found = await self._lookups.find(name)
        verdict = creation_rules.after_look_up(attempt, found, clock.now_s())
        if isinstance(verdict, creation_rules.GiveUp):
            return self._give_up(uid, verdict)
        if verdict is attempt:
            return Later(LOOK_AGAIN_S)
        if verdict.volume is not None:
            return self._made(uid, verdict, verdict.volume)
        return self._keep(uid, verdict)

    def _keep(self, uid: str, attempt: Attempt) -> Attempt:
        self.attempts[uid] = attempt
        return attempt

    async def _discard(self, claim: Claim, volume: Volume, why: str) -> None:
        """Delete a volume that cannot serve its claim, unless a PersistentVolume names it."""
        volume_id = volume.volume_id
        log.warning("deleting a volume that cannot be used", volume=volume_id, why=why)
        try:
            await self._volumes.delete(volume_id, gate=lambda: self._caches.nobody_names(volume_id))
        except StorageError as error:
            text = f"{why}; volume {volume_id} cannot be deleted yet: {error.message}"
            self._events.failed(claim, StorageError(error.reason, text), once=True)
            raise

    def _fail(
        self, uid: str, verdict: creation_rules.Continue | creation_rules.GiveUp
    ) -> Attempt | creation_rules.GiveUp:
        match verdict:
            case creation_rules.Continue(attempt=attempt, error=error):
                again = self.attempts[uid].uncertain
                self.attempts[uid] = attempt
                # One lost reply is repaired by the next request; only a second one is reported.
                is_news = error.outcome is not Outcome.UNKNOWN or again
                if error.reason is Reason.TOKEN_MISMATCH and attempt.is_clear:
                    is_news = False  # dozens of tokens may be used up, each by a failed volume
                if is_news:
                    self._events.failed(attempt.plan.claim, error)
                if attempt.looking_since_s is None and error.reason is not Reason.TOKEN_MISMATCH:
                    raise error
                return attempt
            case creation_rules.GiveUp():
                return self._give_up(uid, verdict)
            case _:
                assert_never(verdict)

    def _give_up(self, uid: str, verdict: creation_rules.GiveUp) -> creation_rules.GiveUp:
        attempt = self.attempts.pop(uid)
        self._next_tokens[uid] = verdict.next_token
        self._events.failed(attempt.plan.claim, verdict.error)
        if not verdict.choose_again:
            before, most_s = self._given_up[uid], self._most_pause_s
            pause_s = creation_rules.pause_s(verdict.error, before, most_s)
            chance = random.random()  # noqa: S311 -- no secret
            verdict.error.retry_after_s = pause_s * (1.0 + 0.1 * chance)
            self._given_up[uid] += 1
        return verdict

    def _made(self, uid: str, attempt: Attempt, volume: Volume) -> Attempt:
        """Remember the volume before anything else is awaited."""
        attempt = creation_rules.with_volume(attempt, volume)
        self.attempts[uid] = attempt
        if UNCLAIMED in volume.tags:  # the stock driver's volumes have no such tag
            self._unclaimed.note(volume.volume_id)
        self._watcher.watch(
            volume.volume_id,
            f"provision {uid}",
            lambda: self._wake(uid),
            asked=_CREATION,
        )
        return attempt

    async def _save(self, uid: str, attempt: Attempt, volume: Volume) -> None:
        plan = attempt.plan
        try:
            saved = await self._client.create(PERSISTENT_VOLUMES, self._objects.body(plan, volume))
        except KubeError as error:
            if error.reason is not Reason.OBJECT_EXISTS:
                if self._objects.is_going(uid) and creation_rules.is_refused_for_good(error):
                    why = "the API server rejects its persistent volume, and its claim is gone"
                    await self._discard(plan.claim, volume, f"{why}: {error.message}")
                    self._unclaimed.forget(volume.volume_id)
                    self._end(uid, volume)
                    return
                self._events.failed(plan.claim, error)
                raise
            saved = await self._client.get(PERSISTENT_VOLUMES, plan.persistent_volume_name)
            conflict = self._objects.conflict(saved, plan, volume)
            if conflict is not None:
                # The claim has a persistent volume of its name. Our tagged volume stays for as
                # long as that one is there, then the sweep ends it.
                self._end(uid, volume)
                self._events.failed(plan.claim, conflict)
                raise conflict from error
        self._caches.persistent_volumes.observe(saved)
        if self._unclaimed.is_tagged(volume.volume_id):
            self._unclaimed.remove(volume.volume_id)
        self._end(uid, volume)
        self._record(attempt, volume)

    def _end(self, uid: str, volume: Volume) -> None:
        self.attempts.pop(uid, None)
        self._watcher.forget(volume.volume_id, f"provision {uid}")

    def _record(self, attempt: Attempt, volume: Volume) -> None:
        plan = attempt.plan
        took_s = clock.now_s() - attempt.started_at_s
        self._metrics.flow_seconds.labels("provision").observe(took_s)
        self._events.succeeded(
            plan.claim, f"Successfully provisioned volume {plan.persistent_volume_name}"
        )
        if plan.iops is not None:
            request = plan.request
            text = iops_rules.lowered_message(
                plan.iops, request.volume_type, request.size_gib, has=volume.iops
            )
            if text is not None:
                self._events.fewer_iops(plan.claim, text)
        log.info(
            "volume provisioned",
            claim=plan.claim.key,
            persistent_volume=plan.persistent_volume_name,
            volume=volume.volume_id,
            zone=volume.zone,
            size_gib=volume.size_gib,
            in_s=round(took_s, 2),
        )

    def _is_abandoned(self, uid: str, attempt: Attempt) -> bool:
        """Certainly nothing exists for the attempt, and the claim is gone or being deleted."""
        return not attempt.uncertain and self._objects.is_going(uid)

    def _forget_volume(self, uid: str, attempt: Attempt) -> None:
        """The attempt's volume is gone."""
        if attempt.volume is not None:
            self._watcher.forget(attempt.volume.volume_id, f"provision {uid}")
            self._unclaimed.forget(attempt.volume.volume_id)
