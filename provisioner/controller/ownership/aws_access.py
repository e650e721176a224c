"""Whether this replica can work: AWS credentials that EC2 accepts, where the cluster is.

A replica that cannot does not take the leases, and a leader that cannot any more gives them up: one
with credentials leads then. Where no replica has any, none takes the leases, each waits by itself,
and nothing goes to and fro; a leader ends once and begins again as such a replica. It could have
done next to nothing without EC2 anyway.

Nothing is believed to be gone from EC2 before one thing that the cluster knows was found there with
the credentials in use, by whose leave EC2 said so.
"""

import asyncio
from dataclasses import dataclass

import structlog

from provisioner.controller.shared.services import Services
from provisioner.ec2 import account_rules
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.credentials import NoUsableCredentialsError
from provisioner.ec2.lookups import any_instance, any_volume
from provisioner.model.errors import Ec2Error, Reason, StorageError

LOOK_EVERY_S = 5.0
# A leader waits so long for credentials to come back: longer than EC2 or STS is away for a moment,
# and than a renewal takes.
GIVE_UP_S = 60.0
_ASK_S = 10.0
_VOUCH_AGAIN_S = 60.0
# A thousand things that are gone at once have it looked for once.
_DOUBT_HOLDS_S = 5.0
_ANY = "i-00000000000000000"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why this replica cannot work.

    Attributes:
        reason: of errors.
        why: for whoever reads the log or asks whether it is ready.
        is_sure: enough not to work at all. Volumes alone may be left over, or deleted, and Nodes
            tell nothing before ``--initialize-nodes``, which somebody has to lead for.
    """

    reason: Reason
    why: str
    is_sure: bool = True


class AwsAccess:
    """Where this replica looks, and whether it may.

    Attributes:
        why_not: what keeps it from working, "" when nothing does.
    """

    def __init__(self, services: Services, calls: Ec2Calls) -> None:
        self._calls = calls
        self._caches = services.caches
        self._driver = services.settings.driver
        self._proven_with: str | None = None  # the access key
        self._proving = asyncio.Lock()
        self._doubt: Unfit | None = None  # of the last look for a proof
        self._doubt_until_s = 0.0
        self._untold = ""  # why EC2 could not tell, as the log has it
        self.why_not = ""

    async def fit(self) -> None:
        """Wait until this replica can work."""
        while await self._unfit() is not None:  # noqa: ASYNC110 -- only EC2 and STS can tell
            await asyncio.sleep(LOOK_EVERY_S)

    async def lost(self) -> StorageError:
        """Wait until it surely cannot any more: why."""
        loop = asyncio.get_running_loop()
        since_s: float | None = None
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            unfit = await self._unfit()
            if unfit is None:
                since_s = None
                continue
            since_s = loop.time() if since_s is None else since_s
            patience_s = GIVE_UP_S if unfit.reason is Reason.CREDENTIALS_INVALID else 0.0
            if loop.time() - since_s >= patience_s:
                return StorageError(unfit.reason, f"this replica stops leading: {unfit.why}")

    async def vouch(self, gone: Ec2Error) -> None:
        """Believe that EC2 does not know what it was asked for.

        Raises:
            Ec2Error: it may well be there; we look elsewhere, or cannot tell where.
        """
        async with self._proving:
            if self._is_proven():
                return
            unfit = await self._doubted()
        if unfit is not None:
            message = f"{gone.message}; this is not trusted: {unfit.why}"
            raise Ec2Error(
                unfit.reason, message, action=gone.action, retry_after_s=_VOUCH_AGAIN_S
            ) from gone

    async def _doubted(self) -> Unfit | None:
        """Why nothing is believed to be gone; looked for again after a few seconds."""
        loop = asyncio.get_running_loop()
        if self._doubt is None or loop.time() >= self._doubt_until_s:
            try:
                self._doubt = await self._prove()
            except StorageError as error:
                self._doubt = Unfit(error.reason, error.message)
            self._doubt_until_s = loop.time() + _DOUBT_HOLDS_S
        return self._doubt

    async def _unfit(self) -> Unfit | None:
        unfit = await self._without_credentials() or await self._elsewhere()
        why = unfit.why if unfit is not None else ""
        if why and why != self.why_not:
            log.warning("this replica cannot work, so another one may lead", why=why)
        elif self.why_not and not why:
            log.info("this replica can work now")
        self.why_not = why
        return unfit

    async def _without_credentials(self) -> Unfit | None:
        credentials = self._calls.credentials
        if credentials is None:
            return None
        credentials.look()
        if credentials.key_id:
            return None
        try:
            await asyncio.to_thread(credentials.get_frozen_credentials)  # waits for the first look
        except NoUsableCredentialsError as failure:
            return Unfit(Reason.CREDENTIALS_INVALID, f"no AWS credentials: {failure}")
        return None

    async def _elsewhere(self) -> Unfit | None:
        credentials = self._calls.credentials
        if self._is_proven() and not (credentials is not None and credentials.refusal):
            return None
        try:
            async with self._proving, asyncio.timeout(_ASK_S):
                unfit = await self._prove()
        except (StorageError, TimeoutError) as error:
            unfit = self._unanswered(error)
        if unfit is not None and unfit.is_sure:
            return unfit
        why = unfit.why if unfit is not None else ""
        if why and why != self._untold:
            log.warning("cannot verify yet that EC2 is asked in the cluster's account", error=why)
        self._untold = why
        return None

    @staticmethod
    def _unanswered(error: StorageError | TimeoutError) -> Unfit:
        """EC2 does not tell; only credentials that it refuses are a reason not to work."""
        if isinstance(error, StorageError):
            is_refused = error.reason is Reason.CREDENTIALS_INVALID
            return Unfit(error.reason, error.message, is_sure=is_refused)
        return Unfit(Reason.TIMED_OUT, f"EC2 gave no answer in {_ASK_S:.0f} s", is_sure=False)

    def _is_proven(self) -> bool:
        return self._proven_with == self._key_id()

    def _key_id(self) -> str:
        credentials = self._calls.credentials
        return credentials.key_id if credentials is not None else ""

    async def _prove(self) -> Unfit | None:
        """Ask EC2 for what the cluster knows to be there; nothing known is no contradiction.

        Raises:
            StorageError: EC2 could not be asked.
        """
        caches, calls, key_id = self._caches, self._calls, self._key_id()
        nodes, volumes = caches.nodes.values(), caches.persistent_volumes.values()
        by_nodes = account_rules.regions_of(nodes)
        if by_nodes and calls.region not in by_nodes:
            return Unfit(Reason.WRONG_CLOUD, account_rules.wrong_region(calls.region, by_nodes))
        instance_ids = account_rules.instance_ids(nodes, caches.csi_nodes.get, self._driver)
        found = bool(instance_ids) and await any_instance(calls, instance_ids)
        volume_ids = [] if found else account_rules.volume_ids(volumes, self._driver)
        found = found or (bool(volume_ids) and await any_volume(calls, volume_ids))
        if found:
            self._proven_with = key_id
        elif instance_ids or volume_ids:
            ids = [*instance_ids, *volume_ids]
            why = account_rules.wrong_account(calls.region, ids)
            told = by_nodes or account_rules.regions_of_volumes(volumes)
            if told and calls.region not in told:
                why = account_rules.wrong_region(calls.region, told)
            return Unfit(Reason.WRONG_CLOUD, why, is_sure=bool(instance_ids))
        elif calls.credentials is not None:  # what it says is only whether it accepts them
            await any_instance(calls, [_ANY])
        return None
