"""AWS credentials, looked for and renewed beside the calls that are signed with them.

botocore looks for credentials once, while a client is made: one slow answer of the instance
metadata service then, and that client never has any (boto/botocore #1791, #2304). And it renews
them inside whichever call finds them about to expire, so a call hangs as long as STS does.

Here a thread looks for them whenever that is due, from the beginning for as long as there are none
or EC2 refuses what there is. A call takes what was found last; old ones are used until EC2 refuses
them. Nothing is known of their expiry: botocore renews in time, and EC2's answer is the truth.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import structlog
from botocore.exceptions import NoCredentialsError

from provisioner.model.backoff import Backoff

LOOK_EVERY_S = 30.0  # botocore renews them 10 to 15 minutes before they expire
_OLD_S = 300.0  # after such a silence they may have expired: worth a moment's wait
_WAIT_S = 5.0  # of a call, for the first ones
_AGAIN = Backoff(1.0, 15.0)
_NONE = (
    "none are found in the environment, a web identity, a container's agent, a file or the "
    "instance's metadata service (it needs an instance role, and for pods a hop limit of 2, "
    "HttpPutResponseHopLimit)"
)

log = structlog.get_logger(__name__)


class Source(Protocol):
    """botocore's credentials from one provider, which renews them when asked."""

    def get_frozen_credentials(self) -> Any:
        """The keys, renewed if that is due."""


class NoUsableCredentialsError(NoCredentialsError):
    """There are none yet; nothing was sent."""

    fmt = "{why}"


class Credentials:
    """What botocore signs with, as one of its own credentials objects.

    Attributes:
        missing: why there are none, "" when there are or nobody has looked yet.
        refusal: what EC2 said when it refused these last, "" if it did not.
    """

    method = "ebs-provisioner"  # botocore tells from it how they were found

    def __init__(
        self,
        find: Callable[[], Source | None],
        *,
        tell: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``find`` may take seconds and raise anything; ``tell`` hears 1 or 0, usable or not."""
        self._find = find
        self._tell = tell
        self._clock = clock
        self._changed = threading.Condition()
        self._source: Source | None = None
        self._keys: Any = None
        self._looking = False
        self._looked_at_s = float("-inf")
        self._failures = 0
        self._is_renewed = True
        self.missing = ""
        self.refusal = ""

    @property
    def trouble(self) -> str:
        """Why calls are not accepted, "" as far as that is known."""
        return self.missing or self.refusal

    @property
    def key_id(self) -> str:
        """The access key in use, "" while there is none; each renewal brings another."""
        return str(self._keys.access_key) if self._keys is not None else ""

    def look(self) -> None:
        """Look for them, or have them renewed, if that is due; returns at once."""
        with self._changed:
            if self._looking or self._clock() - self._looked_at_s < self._pause_s():
                return
            self._looking = True
        # A daemon: the end of the process waits for no STS.
        threading.Thread(target=self._look, name="aws-credentials", daemon=True).start()

    def get_frozen_credentials(self) -> Any:
        """The keys to sign one call with; at the beginning it waits a few seconds for them.

        Raises:
            NoUsableCredentialsError: there are none.
        """
        self.look()
        with self._changed:
            if self._keys is None or self._clock() - self._looked_at_s > _OLD_S:
                self._changed.wait_for(lambda: not self._looking, _WAIT_S)
            if self._keys is None:
                why = self.missing or f"none were found within {_WAIT_S:.0f} s"
                raise NoUsableCredentialsError(why=why)
            return self._keys

    def get_deferred_property(self, property_name: str) -> Callable[[], Any]:
        """What botocore may put into an endpoint's name (the account's id); EC2's has none."""
        return lambda: getattr(self._keys, property_name, None)

    def accepted(self) -> None:
        """EC2 has accepted the credentials of a call; its answer does not matter."""
        if self.refusal:
            self.refusal = ""
            self._tell(int(not self.trouble))

    def refused(self, why: str) -> None:
        """EC2 has refused the credentials of a call: look for others."""
        self.refusal = why
        self._tell(0)

    def _pause_s(self) -> float:
        if not self.trouble:
            return LOOK_EVERY_S
        return _AGAIN.pause_s(self._failures)

    def _look(self) -> None:
        """In a thread of its own."""
        keys, source, why = None, None if self.trouble else self._source, _NONE
        try:
            source = source or self._find()
            keys = source.get_frozen_credentials() if source is not None else None
        except Exception as failure:  # a provider may raise anything
            why = str(failure)
        with self._changed:
            if keys is not None and keys != self._keys:
                self._keys, self.refusal = keys, ""
            self._source = source if keys is not None else None
            self.missing = why if self._keys is None else ""
            self._failures = self._failures + 1 if self.trouble else 0
            self._looked_at_s = self._clock()
            self._looking = False
            self._changed.notify_all()
        if keys is None and self._keys is not None and self._is_renewed:
            log.warning(
                "cannot renew the AWS credentials; the old ones are used until EC2 refuses them",
                error=why,
            )
        self._is_renewed = keys is not None
        self._tell(int(not self.trouble))
