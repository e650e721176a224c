"""What a claim's user is told, as Events on the claim.

The reasons are those of external-provisioner 6.3, so that alerts on them go on working; the
message begins with our own, finer reason.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from provisioner.kube.events import EventRecorder, Regarding
from provisioner.model.claim import CLAIM_KIND, Claim
from provisioner.model.errors import NEEDS_HUMAN, RATE_LIMITED, Reason, StorageError
from provisioner.tell_once import TellOnce


class ClaimEvents:
    """Events on claims; remembers what it said last, so that nothing settled is said twice.

    ``regarding``: the object that an event is about, if that is not the claim.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        *,
        regarding: Callable[[Claim], Regarding] = lambda claim: Regarding.of(claim, CLAIM_KIND),
    ) -> None:
        self._recorder = recorder
        self._regarding = regarding
        self._said = TellOnce()

    def failed(self, claim: Claim, error: StorageError, *, once: bool = False) -> bool:
        """A Warning: what went wrong, and what would help.

        Returns:
            Whether it was told; with ``once`` not when it was what was told last, and never that
            another replica goes on, or that it is another one's turn, which is no Warning.
        """
        if error.reason is Reason.NOT_LEADING:
            return False
        if error.reason in RATE_LIMITED:
            self.note(claim, f"{error.message}; will try again")
            return False
        text = f"{error.reason}: {error.message}"
        if not self._said.is_news(claim.uid, text) and once:
            return False
        self._say(claim, text, reason="ProvisioningFailed", warning=True)
        return True

    @contextmanager
    def reporting(self, claim: Claim) -> Iterator[None]:
        """Report why a read of EC2 or of the API server fails, if a human has to act."""
        try:
            yield
        except StorageError as error:
            self.lookup_failed(claim, error)
            raise

    def lookup_failed(self, claim: Claim, error: StorageError) -> None:
        """Report once that a read failed, if a human has to act."""
        if error.reason in NEEDS_HUMAN | {Reason.UNREADABLE}:
            self.failed(claim, error, once=True)

    def note(self, claim: Claim, text: str) -> None:
        """A Normal event about what is going on; told once."""
        if self._said.is_news(claim.uid, text):
            self._say(claim, text, reason="Provisioning", warning=False)

    def in_progress(self, claim: Claim) -> None:
        """A Normal event: it takes its time; told once."""
        self.note(claim, f'External provisioner is provisioning volume for claim "{claim.key}"')

    def in_progress_if_silent(self, claim: Claim) -> None:
        """The same, unless something was said about the claim already."""
        if claim.uid not in self._said:
            self.in_progress(claim)

    def succeeded(self, claim: Claim, text: str) -> None:
        """A Normal event: it is done."""
        self._say(claim, text, reason="ProvisioningSucceeded", warning=False)

    def fewer_iops(self, claim: Claim, text: str) -> None:
        """A Warning: the volume is there, with fewer IOPS than its class asks for."""
        self._say(claim, f"{Reason.IOPS_CAPPED}: {text}", reason="Provisioning", warning=True)

    def forget(self, uid: str) -> None:
        """The claim is bound or gone."""
        self._said.forget(uid)

    def _say(self, claim: Claim, text: str, *, reason: str, warning: bool) -> None:
        self._said.is_news(claim.uid, text)
        about = self._regarding(claim)
        self._recorder.record(about, warning=warning, reason=reason, message=text)
