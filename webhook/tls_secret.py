"""The Secret of the certificates: how its bytes are read, and what each step writes into it.

=================  =================================================================
``ca.crt``         the bundle: every authority that API servers are to trust
``tls.crt, .key``  what every replica serves
``next.crt, .key`` what it will serve next; only while that is being published
``retired.crt``    what the bundle held besides, before it was pruned
=================  =================================================================
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from provisioner.kube.resources import Resource
from provisioner.model.meta import KubeObject
from webhook import certificates, issuing
from webhook.certificates import Authority, CertificateError, Names
from webhook.decide.rotation import (
    MOST_AUTHORITIES,
    Adopt,
    Content,
    Make,
    Pair,
    Prepare,
    Prune,
    Swap,
)
from webhook.issuing import Issued

BUNDLE = "ca.crt"
CERTIFICATE, KEY = "tls.crt", "tls.key"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"
RETIRED = "retired.crt"
# For people: nothing reads it.
ANNOTATION = "ebs-provisioner.io/certificates"

Changes = dict[str, bytes | None]
Json = dict[str, Any]


class Secret(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A core/v1 Secret; its values are base64 in JSON, which is what msgspec takes for bytes."""

    data: dict[str, bytes | None] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.key!r})"


SECRETS = Resource("", "v1", "secrets", "Secret", Secret, True)  # noqa: FBT003 -- namespaced


@dataclass(frozen=True, slots=True)
class Held:
    """A Secret's content, read.

    Attributes:
        content: what the rules ask about it.
        authorities: of the bundle, in its order.
        data: the bytes under our keys.
    """

    content: Content
    authorities: tuple[Authority, ...]
    data: Mapping[str, bytes] = field(repr=False)

    @property
    def bundle(self) -> bytes:
        """What the webhook configurations are to carry."""
        return certificates.bundle(self.authorities)


def read(secret: Secret | None, names: Names) -> Held:
    """What a Secret holds, whatever somebody has put into it; None for one that is not there.

    Args:
        secret: as the API server shows it.
        names: who a certificate has to be made out to.
    """
    stored = (secret.data if secret is not None else None) or {}
    data = {name: value for name, value in stored.items() if value}
    known = certificates.authorities(data.get(BUNDLE, b""))
    serving, spoilt = _pair(data, CERTIFICATE, KEY, known, names)
    upcoming, spoilt_upcoming = _pair(data, NEXT_CERTIFICATE, NEXT_KEY, known, names)
    no_bundle = f"{BUNDLE}: it holds no certificate" if BUNDLE in data and not known else ""
    content = Content(
        serving=serving,
        upcoming=upcoming,
        authorities=tuple(authority.fingerprint for authority in known),
        retired=frozenset(
            authority.fingerprint for authority in certificates.authorities(data.get(RETIRED, b""))
        ),
        tidy=certificates.bundle(known) == data.get(BUNDLE, b""),
        problems=tuple(filter(None, (no_bundle, spoilt, spoilt_upcoming))),
        spoilt_upcoming=bool(spoilt_upcoming),
    )
    return Held(content, known, data)


def after(
    step: Make | Prepare | Adopt | Swap | Prune,
    held: Held,
    names: Names,
    now: datetime,
    trusted: Iterable[Authority] = (),
) -> Changes:
    """What a step changes in the Secret: values by key, None for one that goes.

    Args:
        step: what is to be done.
        held: what the Secret holds.
        names: who a new certificate is made out to.
        now: wall clock, UTC.
        trusted: what the webhook configurations trust, for ``Adopt``; first what must not be left
            out, should there be no room for all.
    """
    match step:
        case Make() | Prepare():
            return _renewed(step, held, issuing.issue(names, now), now)
        case Adopt():
            retired = held.content.retired
            strangers = [each for each in trusted if each.fingerprint not in retired]
            return {BUNDLE: _bundle([*held.authorities, *strangers], now)}
        case Swap():
            return {
                CERTIFICATE: held.data[NEXT_CERTIFICATE],
                KEY: held.data[NEXT_KEY],
                NEXT_CERTIFICATE: None,
                NEXT_KEY: None,
            }
        case Prune():
            serving = held.content.serving
            needed = serving.authority if serving is not None else ""
            kept = [each for each in held.authorities if each.fingerprint == needed]
            rest = [each for each in held.authorities if each.fingerprint != needed]
            return {BUNDLE: certificates.bundle(kept), RETIRED: certificates.bundle(rest)}


def _renewed(step: Make | Prepare, held: Held, issued: Issued, now: datetime) -> Changes:
    if isinstance(step, Prepare):
        trusted = [*certificates.authorities(issued.authority), *held.authorities]
        return {
            BUNDLE: _bundle(trusted, now),
            NEXT_CERTIFICATE: issued.certificate,
            NEXT_KEY: issued.key,
            RETIRED: None,
        }
    return {
        BUNDLE: issued.authority,
        CERTIFICATE: issued.certificate,
        KEY: issued.key,
        NEXT_CERTIFICATE: None,
        NEXT_KEY: None,
        RETIRED: None,
    }


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


def _pair(
    data: Mapping[str, bytes],
    certificate: str,
    key: str,
    known: tuple[Authority, ...],
    names: Names,
) -> tuple[Pair | None, str]:
    """A pair, or why there is none; "" if nothing is there."""
    if certificate not in data and key not in data:
        return None, ""
    try:
        return _usable(data.get(certificate, b""), data.get(key, b""), known, names), ""
    except CertificateError as error:
        return None, f"{certificate}: {error}"


def _usable(certificate: bytes, key: bytes, known: tuple[Authority, ...], names: Names) -> Pair:
    leaf = certificates.read_leaf(certificate, key)
    if lacking := leaf.lacks(names):
        raise CertificateError(f"the certificate is not made out to {', '.join(lacking)}")
    authority = certificates.signer(leaf, known)
    if authority is None:
        raise CertificateError("no authority in ca.crt has signed the certificate")
    return Pair(
        leaf.fingerprint,
        authority.fingerprint,
        max(leaf.not_before, authority.certificate.not_valid_before_utc),
        min(leaf.not_after, authority.certificate.not_valid_after_utc),
    )


def _told(what: str, now: datetime) -> dict[str, str]:
    return {ANNOTATION: f"{what} {now:%Y-%m-%dT%H:%M:%SZ}"}


def _bundle(trusted: Iterable[Authority], now: datetime) -> bytes:
    """The authorities that are of use, each once, in their order."""
    known = {each.fingerprint: each for each in trusted if not each.expired(now)}
    return certificates.bundle([*known.values()][:MOST_AUTHORITIES])
