"""The Secret of the certificates: how its bytes are read, and what each step writes into it.

=================  =================================================================
``ca.crt``         the bundle: every authority that API servers have trusted
``ca.key``         of that which signs
``tls.crt, .key``  what every replica serves
=================  =================================================================

A reader of the Secret could serve in our place with ``tls.key`` alone, so a key that signs gives
him no more: only our own webhook configurations trust what it signs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from provisioner.kube.client import KubeClient, Patch, find
from provisioner.kube.informer import Informer
from provisioner.kube.resources import Resource
from provisioner.metrics import SharedMetrics
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import KubeObject
from provisioner.model.names import CERTIFICATES
from webhook.certificates import issuing
from webhook.certificates.issuing import Authority, CertificateError, Names
from webhook.certificates.rotation_rules import MOST_AUTHORITIES, Adopt, Content, Make, Pair, Sign

BUNDLE, AUTHORITY_KEY = "ca.crt", "ca.key"
CERTIFICATE, KEY = "tls.crt", "tls.key"
# Of releases that threw each authority's key away.
_FORMER = ("next.crt", "next.key", "retired.crt")

Changes = dict[str, bytes | None]
Json = dict[str, Any]


class Secret(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A core/v1 Secret; its values are base64 in JSON, which is what msgspec takes for bytes."""

    data: dict[str, bytes | None] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.key!r})"


SECRETS = Resource("", "v1", "secrets", "Secret", Secret)


class TlsSecret:
    """The one Secret of all replicas, at the API server.

    Args:
        client: to the API server.
        namespace, name: where it is.
    """

    def __init__(self, client: KubeClient, *, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    def __str__(self) -> str:
        return f"Secret {self._namespace}/{self._name}"

    def informer(self, metrics: SharedMetrics) -> Informer[Secret]:
        """Tells of changes; what counts is read live."""
        mine = f"metadata.name={self._name}"
        return Informer(
            self._client, SECRETS, metrics, namespace=self._namespace, field_selector=mine
        )

    async def read(self) -> Secret | None:
        """What is there now, None if it is not there.

        Raises:
            KubeError: it cannot be read.
        """
        return await find(self._client, SECRETS, self._name, self._namespace)

    async def write(
        self, secret: Secret | None, changes: Changes, what: str, now: datetime
    ) -> None:
        """Write a step's changes into the Secret that was read, or create it.

        Raises:
            KubeError: CONFLICT when it has changed since it was read.
        """
        if secret is not None:
            body = patched(secret, changes, what, now)
            await self._client.patch(
                SECRETS, self._name, body, kind=Patch.MERGE, namespace=self._namespace
            )
            return
        try:
            body = created(self._name, changes, what, now)
            await self._client.create(SECRETS, body, self._namespace)
        except KubeError as error:
            if error.reason is not Reason.FORBIDDEN:
                raise
            message = (
                f"{self} does not exist, and the webhook may not create it; "
                "apply manifests/webhook/state.yaml again"
            )
            raise KubeError(error.reason, message) from error


@dataclass(frozen=True, slots=True)
class Held:
    """A Secret's content, read.

    Attributes:
        content: what the rules ask about it.
        authorities: of the bundle, in its order, unless expired.
        data: the bytes under our keys.
    """

    content: Content
    authorities: tuple[Authority, ...]
    data: Mapping[str, bytes] = field(repr=False)

    def bundle(self, fingerprints: Iterable[str]) -> bytes:
        """Some of the authorities, as the webhook configurations carry them."""
        wanted = {*fingerprints}
        return issuing.bundle(each for each in self.authorities if each.fingerprint in wanted)


def read(secret: Secret | None, names: Names, now: datetime) -> Held:
    """What a Secret holds, whatever somebody has put into it; None for one that is not there.

    Args:
        secret: as the API server shows it.
        names: that a certificate has to cover.
        now: wall clock, UTC.
    """
    stored = (secret.data if secret is not None else None) or {}
    data = {name: value for name, value in stored.items() if value}
    every = issuing.authorities(data.get(BUNDLE, b""))
    known = tuple(each for each in every if not each.expired(now))
    problems = [f"{BUNDLE}: it contains no certificate"] if BUNDLE in data and not every else []
    authority = serving = None
    try:
        if AUTHORITY_KEY in data:
            found = issuing.signing_key(data[AUTHORITY_KEY], every)
            ends = found.certificate.not_valid_before_utc, found.certificate.not_valid_after_utc
            authority = Pair(found.fingerprint, found.fingerprint, *ends)
    except CertificateError as error:
        problems.append(f"{AUTHORITY_KEY}: {error}")
    try:
        if CERTIFICATE in data or KEY in data:
            serving = _usable(data.get(CERTIFICATE, b""), data.get(KEY, b""), every, names)
    except CertificateError as error:
        problems.append(f"{CERTIFICATE}: {error}")
    fingerprints = tuple(each.fingerprint for each in known)
    return Held(Content(authority, serving, fingerprints, tuple(problems)), known, data)


def after(
    step: Make | Adopt | Sign,
    held: Held,
    names: Names,
    now: datetime,
    trusted: Iterable[Authority] = (),
) -> Changes:
    """What a step changes in the Secret: values by key, None for one that goes.

    Args:
        step: what is to be done.
        held: what the Secret holds.
        names: for which a new certificate is issued.
        now: wall clock, UTC.
        trusted: what the webhook configurations trust; first what must not be left out, should
            there be no room for all.
    """
    changes: Changes = {name: None for name in _FORMER if name in held.data}
    if isinstance(step, Make):
        made = issuing.new_authority(now)
        beside = [*issuing.authorities(made.certificate), *trusted, *held.authorities]
        return changes | {BUNDLE: _bundle(beside, now), AUTHORITY_KEY: made.key}
    if isinstance(step, Adopt):
        changes[BUNDLE] = _bundle([*held.authorities, *trusted], now)
    key = held.data[AUTHORITY_KEY]
    leaf = issuing.signed(names, issuing.signing_key(key, held.authorities), key, now)
    return changes | {CERTIFICATE: leaf.certificate, KEY: leaf.key}


def created(name: str, changes: Changes, what: str, now: datetime) -> Json:
    """A new Secret; ``what`` is the step, for people."""
    values = {key: value for key, value in changes.items() if value is not None}
    # kubernetes.io/tls would forbid a Secret that is still empty, which the manifests make.
    metadata = {"name": name, "annotations": _told(what, now)}
    return {"type": "Opaque", "metadata": metadata, "data": msgspec.to_builtins(values)}


def patched(secret: Secret, changes: Changes, what: str, now: datetime) -> Json:
    """A merge patch that is refused if the Secret is not the one that was read any more."""
    version = secret.metadata.resource_version
    metadata = {"resourceVersion": version, "annotations": _told(what, now)}
    return {"metadata": metadata, "data": msgspec.to_builtins(changes)}


def _usable(certificate: bytes, key: bytes, known: tuple[Authority, ...], names: Names) -> Pair:
    leaf = issuing.read_leaf(certificate, key)
    if lacking := leaf.lacks(names):
        raise CertificateError(f"the certificate is not valid for {', '.join(lacking)}")
    authority = issuing.signer(leaf, known)
    if authority is None:
        raise CertificateError("the certificate is not signed by a CA in ca.crt")
    return Pair(
        leaf.fingerprint,
        authority.fingerprint,
        max(leaf.not_before, authority.certificate.not_valid_before_utc),
        min(leaf.not_after, authority.certificate.not_valid_after_utc),
    )


def _told(what: str, now: datetime) -> dict[str, str]:
    return {CERTIFICATES: f"{what} {now:%Y-%m-%dT%H:%M:%SZ}"}


def _bundle(trusted: Iterable[Authority], now: datetime) -> bytes:
    """The authorities that are of use, each once, in their order."""
    known = {each.fingerprint: each for each in trusted if not each.expired(now)}
    return issuing.bundle([*known.values()][:MOST_AUTHORITIES])
