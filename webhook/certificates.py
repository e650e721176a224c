"""Certificates as others' bytes hold them: read, and looked at as the API server will.

Bytes are never trusted: whatever is no certificate or key is left out or named in one sentence.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# What cryptography raises for bytes that are no certificate or key, or an odd one.
_ODD = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


class CertificateError(ValueError):
    """Bytes that hold no certificate that could be served; the text says why."""


@dataclass(frozen=True, slots=True)
class Names:
    """Who a server certificate is made out to.

    Attributes:
        dns: host names.
        ips: IP addresses, as the URL of a webhook writes them.
    """

    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()

    @classmethod
    def of_service(cls, service: str, namespace: str) -> "Names":
        """As the API server calls a service, and as people do."""
        host = f"{service}.{namespace}.svc"
        return cls(dns=(host, f"{host}.cluster.local"))

    @classmethod
    def of_url(cls, url: str) -> "Names":
        """As the API server calls the host of a URL."""
        host = urlsplit(url).hostname or ""
        try:
            return cls(ips=(str(ipaddress.ip_address(host)),))
        except ValueError:
            return cls(dns=(host,))


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate of a bundle, by which others are trusted."""

    fingerprint: str
    certificate: x509.Certificate = field(repr=False, compare=False)

    @property
    def pem(self) -> bytes:
        """As a bundle holds it."""
        return self.certificate.public_bytes(Encoding.PEM)

    def expired(self, now: datetime) -> bool:
        """Whether it is of no more use to anybody."""
        return now >= self.certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class Leaf:
    """A server certificate whose key is at hand.

    Attributes:
        fingerprint: SHA-256 of the certificate, hexadecimal.
        not_before, not_after: when it is valid.
        dns, ips: who it is made out to.
    """

    fingerprint: str
    not_before: datetime
    not_after: datetime
    dns: frozenset[str]
    ips: frozenset[str]
    certificate: x509.Certificate = field(repr=False, compare=False)

    def lacks(self, names: Names) -> list[str]:
        """The names that it is not made out to."""
        return [
            *(name for name in names.dns if not _covered(name.lower(), self.dns)),
            *(address for address in names.ips if address not in self.ips),
        ]


@lru_cache(maxsize=64)
def authorities(bundle: bytes) -> tuple[Authority, ...]:
    """The certificates in a bundle, each once, in their order; what is none is left out."""
    found: dict[str, Authority] = {}
    for block in _BLOCK.findall(bundle):
        try:
            certificate = x509.load_pem_x509_certificate(block)
        except _ODD:
            continue
        fingerprint = _fingerprint(certificate)
        found.setdefault(fingerprint, Authority(fingerprint, certificate))
    return tuple(found.values())


def bundle(of: Iterable[Authority]) -> bytes:
    """Authorities as one document, which ``authorities`` reads again."""
    return b"".join(authority.pem for authority in of)


def read_leaf(chain: bytes, key: bytes) -> Leaf:
    """The server certificate at the head of a chain, with its key.

    Args:
        chain: the certificate and perhaps intermediate ones, PEM.
        key: its private key, PEM without a password.

    Raises:
        CertificateError: one of them cannot be read, or they do not belong together.
    """
    try:
        certificate = x509.load_pem_x509_certificates(chain)[0]
        public = _spki(certificate.public_key())
        dns, ips = _names_in(certificate)
    except _ODD as error:
        raise CertificateError("the certificate cannot be read") from error
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except _ODD as error:
        # Not in the library's own words: they might quote what they failed to read.
        raise CertificateError("the private key cannot be read") from error
    if _spki(private.public_key()) != public:
        raise CertificateError("the private key is not that of the certificate")
    return Leaf(
        _fingerprint(certificate),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        dns,
        ips,
        certificate,
    )


def signer(leaf: Leaf, known: Sequence[Authority]) -> Authority | None:
    """Which of the authorities has signed a server certificate itself; None if none has."""
    for authority in known:
        try:
            leaf.certificate.verify_directly_issued_by(authority.certificate)
        except (InvalidSignature, *_ODD):
            continue
        if _may_sign(authority.certificate):
            return authority
    return None


def _names_in(certificate: x509.Certificate) -> tuple[frozenset[str], frozenset[str]]:
    try:
        kind = x509.SubjectAlternativeName
        names = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return frozenset(), frozenset()
    dns = frozenset(name.lower() for name in names.get_values_for_type(x509.DNSName))
    return dns, frozenset(str(each) for each in names.get_values_for_type(x509.IPAddress))


def _covered(name: str, dns: frozenset[str]) -> bool:
    """Whether a name is among others, of which ``*.`` stands for one label."""
    return name in dns or f"*.{name.partition('.')[2]}" in dns


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        kind = x509.BasicConstraints
        return certificate.extensions.get_extension_for_class(kind).value.ca
    except (x509.ExtensionNotFound, *_ODD):
        return False


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()


def _spki(public: object) -> bytes:
    found: bytes = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return found
