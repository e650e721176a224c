"""Whether this replica has access to the right AWS: valid credentials, in the cluster's account.

A replica without it does not take the leases, and a leader that loses it gives them up, so that
another replica with credentials leads. If no replica has any, each waits by itself and none takes
the leases; a leader exits once and starts again as such a replica.

That something is gone from EC2 is not trusted before one thing that the cluster knows was found
there with the credentials in use: EC2 answers NotFound in a wrong account or Region as well.
"""

import asyncio
from dataclasses import dataclass

import structlog

from provisioner import clock
from provisioner.controller.shared.services import Services
from provisioner.ec2 import account_rules
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.credentials import NoUsableCredentialsError
from provisioner.ec2.lookups import any_instance, any_volume
from provisioner.model.errors import Ec2Error, Reason, StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.slices import slices_of

LOOK_EVERY_S = 5.0
# A leader waits this long for valid credentials: longer than a short outage of EC2 or STS, and
# than a renewal takes.
GIVE_UP_S = 60.0
_ASK_S = 10.0
_VOUCH_AGAIN_S = 60.0
# A thousand things that are gone at once share one proof.
_DOUBT_HOLDS_S = 5.0
_ANY = "i-00000000000000000"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why this replica cannot work.

    Attributes:
        reason: of errors.
        why: for the log and the readiness probe.
        is_sure: whether that is reason enough not to lead. Missing volumes alone are not: they may
            have been deleted. Nodes may name no instance before ``--initialize-nodes`` has run,
            for which some replica has to lead.
    """

    reason: Reason
    why: str
    is_sure: bool = True


class AwsAccess:
    """Checks credentials and account, before and while this replica leads.

    Attributes:
        why_not: what keeps it from working, "" when nothing does.
    """

    def __init__(self, services: Services, calls: Ec2Calls) -> None:
        self._calls = calls
        self._caches = services.caches
        self._driver = services.settings.driver
        self._proven_with: str | None = None  # the access key
        self._proving = asyncio.Lock()
        self._doubt: Unusable | None = None  # by the last attempt to prove it
        self._doubt_until_s = 0.0
        self._untold = ""  # the last such reason in the log
        self.why_not = ""

    async def granted(self) -> None:
        """Wait until this replica can work."""
        while await self._unusable() is not None:  # noqa: ASYNC110 -- only EC2 and STS can tell
            await asyncio.sleep(LOOK_EVERY_S)

    async def lost(self) -> StorageError:
        """Wait until it certainly cannot work any longer.

        Returns:
            Why.
        """
        since_s: float | None = None
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            unusable = await self._unusable()
            if unusable is None:
                since_s = None
                continue
            since_s = clock.now_s() if since_s is None else since_s
            patience_s = GIVE_UP_S if unusable.reason is Reason.CREDENTIALS_INVALID else 0.0
            if clock.now_s() - since_s >= patience_s:
                return StorageError(unusable.reason, f"this replica stops leading: {unusable.why}")

    async def confirm_gone(self, gone: Ec2Error) -> None:
        """Return if EC2's answer that something does not exist can be trusted.

        Raises:
            Ec2Error: it may exist: EC2 was asked in a wrong account or Region, or that is unknown.
        """
        async with self._proving:
            if self._is_proven():
                return
            unusable = await self._doubted()
        if unusable is not None:
            message = f"{gone.message}; this is not trusted: {unusable.why}"
            raise Ec2Error(
                unusable.reason, message, action=gone.action, retry_after_s=_VOUCH_AGAIN_S
            ) from gone

    async def _doubted(self) -> Unusable | None:
        """Why no such answer is trusted; checked again after a few seconds."""
        if self._doubt is None or clock.now_s() >= self._doubt_until_s:
            try:
                self._doubt = await self._prove()
            except StorageError as error:
                self._doubt = Unusable(error.reason, error.message)
            self._doubt_until_s = clock.now_s() + _DOUBT_HOLDS_S
        return self._doubt

    async def _unusable(self) -> Unusable | None:
        unusable = await self._without_credentials() or await self._elsewhere()
        why = unusable.why if unusable is not None else ""
        if why and why != self.why_not:
            log.warning("this replica cannot work, so another one may lead", why=why)
        elif self.why_not and not why:
            log.info("this replica can work now")
        self.why_not = why
        return unusable

    async def _without_credentials(self) -> Unusable | None:
        credentials = self._calls.credentials
        if credentials is None:
            return None
        credentials.look()
        if credentials.key_id:
            return None
        try:
            await asyncio.to_thread(credentials.get_frozen_credentials)  # waits for the first look
        except NoUsableCredentialsError as failure:
            return Unusable(Reason.CREDENTIALS_INVALID, f"no AWS credentials: {failure}")
        return None

    async def _elsewhere(self) -> Unusable | None:
        credentials = self._calls.credentials
        if self._is_proven() and not (credentials is not None and credentials.refusal):
            return None
        try:
            async with self._proving, asyncio.timeout(_ASK_S):
                unusable = await self._prove()
        except (StorageError, TimeoutError) as error:
            unusable = self._unanswered(error)
        if unusable is not None and unusable.is_sure:
            return unusable
        why = unusable.why if unusable is not None else ""
        if why and why != self._untold:
            log.warning("cannot verify yet that EC2 is asked in the cluster's account", error=why)
        self._untold = why
        return None

    @staticmethod
    def _unanswered(error: StorageError | TimeoutError) -> Unusable:
        """EC2 gave no proof; only if it refuses the credentials is that a reason not to work."""
        if isinstance(error, StorageError):
            is_refused = error.reason is Reason.CREDENTIALS_INVALID
            return Unusable(error.reason, error.message, is_sure=is_refused)
        return Unusable(
            Reason.TIMED_OUT, f"EC2 gave no answer within {_ASK_S:.0f} s", is_sure=False
        )

    def _is_proven(self) -> bool:
        return self._proven_with == self._key_id()

    def _key_id(self) -> str:
        credentials = self._calls.credentials
        return credentials.key_id if credentials is not None else ""

    async def _prove(self) -> Unusable | None:
        """Ask EC2 for something that the cluster knows to exist.

        A cluster that knows nothing yet proves nothing wrong.

        Raises:
            StorageError: EC2 could not be asked.
        """
        caches, calls, key_id = self._caches, self._calls, self._key_id()
        nodes = caches.nodes.values()
        by_nodes = account_rules.regions_of(nodes)
        if by_nodes and calls.region not in by_nodes:
            return Unusable(Reason.WRONG_CLOUD, account_rules.wrong_region(calls.region, by_nodes))
        instance_ids = account_rules.instance_ids(nodes, caches.csi_nodes.get, self._driver)
        found = bool(instance_ids) and await any_instance(calls, instance_ids)
        volume_ids = [] if found else await self._volume_ids()
        found = found or (bool(volume_ids) and await any_volume(calls, volume_ids))
        if found:
            self._proven_with = key_id
        elif instance_ids or volume_ids:
            ids = [*instance_ids, *volume_ids]
            why = account_rules.wrong_account(calls.region, ids)
            told = by_nodes or await self._regions_of_volumes()
            if told and calls.region not in told:
                why = account_rules.wrong_region(calls.region, told)
            return Unusable(Reason.WRONG_CLOUD, why, is_sure=bool(instance_ids))
        elif calls.credentials is not None:  # this only shows whether EC2 accepts them
            await any_instance(calls, [_ANY])
        return None

    async def _volume_ids(self) -> list[str]:
        """Those that the newest persistent volumes name."""
        newest: list[PersistentVolume] = []
        async for some in slices_of(self._caches.persistent_volumes.values()):
            newest = account_rules.newest_volumes([*newest, *some], self._driver)
        return [each.volume_id(self._driver) or "" for each in newest]

    async def _regions_of_volumes(self) -> dict[str, str]:
        """Where they are; one that is where EC2 is asked is enough."""
        told: dict[str, str] = {}
        async for some in slices_of(self._caches.persistent_volumes.values()):
            for region, says in account_rules.regions_of_volumes(some).items():
                told.setdefault(region, says)
            if self._calls.region in told:
                break
        return told
