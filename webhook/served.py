"""Which certificate this replica serves, and whether it may serve the one that the Secret names."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from math import inf

import structlog

from provisioner.model.errors import Reason, StorageError
from webhook import certificates
from webhook.certificates import CertificateError, Names
from webhook.decide import rotation
from webhook.decide.rotation import Pair, Seen, Waits
from webhook.metrics import WebhookMetrics
from webhook.tls import Contexts
from webhook.tls_secret import CERTIFICATE, KEY, Held

log = structlog.get_logger(__name__)


class Served:
    """The certificate in use.

    Attributes:
        pair: what is served of a Secret that is ours; None as long as nothing is.
    """

    def __init__(self, contexts: Contexts, metrics: WebhookMetrics) -> None:
        self._contexts = contexts
        self._metrics = metrics
        self._foreign: tuple[bytes, bytes] | None = None
        self.pair: Pair | None = None

    def take(self, held: Held, seen: Seen, now: datetime, waits: Waits) -> tuple[Held, float]:
        """Serve what a Secret of ours names, as soon as that is right.

        Returns:
            The Secret's content, without a pair that TLS refuses; and in how many seconds to ask
            again, infinity if there is nothing to be waited for.
        """
        pair = held.content.serving
        if pair is None:
            return held, inf
        if self.pair is not None and pair.fingerprint == self.pair.fingerprint:
            return held, inf
        in_s = rotation.load_in_s(pair, self.pair, seen, now, waits)
        if in_s > 0:
            return held, in_s
        try:
            self._contexts.load(held.data[CERTIFICATE], held.data[KEY])
        except StorageError as error:
            problems = (*held.content.problems, error.message)
            return replace(
                held, content=replace(held.content, serving=None, problems=problems)
            ), inf
        self.pair = pair
        self._note(pair.not_after, pair.fingerprint)
        return held, inf

    def follow(self, data: Mapping[str, bytes | None], names: Names, now: datetime) -> None:
        """Serve what somebody else has put into the Secret; what is odd about it is only told.

        Raises:
            StorageError: it cannot be served; what was served before goes on.
        """
        chain, key = data.get(CERTIFICATE) or b"", data.get(KEY) or b""
        if self._foreign == (chain, key):
            return
        if not chain or not key:
            message = f"the Secret does not hold both {CERTIFICATE} and {KEY}"
            raise StorageError(Reason.CERTIFICATE_UNUSABLE, message)
        self._contexts.load(chain, key)
        self._foreign = chain, key
        try:
            leaf = certificates.read_leaf(chain, key)
        except CertificateError as error:
            log.warning("serving a certificate that cannot be understood", error=str(error))
            return
        if lacking := leaf.lacks(names):
            log.warning("the certificate is not made out to all names", lacking=lacking)
        if not leaf.not_before <= now < leaf.not_after:
            log.warning("the certificate is not valid now", until=leaf.not_after.isoformat())
        self._note(leaf.not_after, leaf.fingerprint)

    def _note(self, not_after: datetime, fingerprint: str) -> None:
        self._metrics.certificate_expiry.set(not_after.timestamp())
        log.info("serving a certificate", sha256=fingerprint, until=not_after.isoformat())
