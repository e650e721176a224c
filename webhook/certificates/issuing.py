"""Certificates: read from others' bytes as the API server will look at them, and our own made.

Bytes are never trusted: what is no certificate or key is left out or named in one sentence. What
is made is ECDSA on P-256, as PEM. Go's verification, which is the API server's, wants the names as
SubjectAlternativeName and ignores the common name.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# The clock that signs may be an hour ahead, and the one that checks an hour behind.
_BACKDATED = timedelta(days=1)
_LEAF_LASTS = timedelta(days=90)
_AUTHORITY_LASTS = timedelta(days=3650)

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
    """The names for which a server certificate is issued.

    Attributes:
        dns: host names.
        ips: IP addresses, each in the one form in which a certificate is read again.
    """

    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()

    @classmethod
    def of_service(cls, service: str, namespace: str, more: Iterable[str] = ()) -> "Names":
        """As the API server calls a service, as people do, and any other hosts or addresses."""
        host = f"{service}.{namespace}.svc"
        ips = {each: str(ipaddress.ip_address(each)) for each in more if _is_address(each)}
        names = (host, f"{host}.cluster.local", *(set(more) - ips.keys()))
        return cls(names, tuple(dict.fromkeys(ips.values())))


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
        """Whether it has expired."""
        return now >= self.certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class Leaf:
    """A server certificate whose key is at hand.

    Attributes:
        fingerprint: SHA-256 of the certificate, hexadecimal.
        not_before, not_after: when it is valid.
        dns, ips: the names for which it was issued.
    """

    fingerprint: str
    not_before: datetime
    not_after: datetime
    dns: frozenset[str]
    ips: frozenset[str]
    certificate: x509.Certificate = field(repr=False, compare=False)

    def lacks(self, names: Names) -> list[str]:
        """The names that it does not cover."""
        return [
            *(name for name in names.dns if not _covered(name.lower(), self.dns)),
            *(address for address in names.ips if address not in self.ips),
        ]


@dataclass(frozen=True, slots=True)
class Made:
    """A new certificate and its key, as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


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


def signing_key(key: bytes, known: Iterable[Authority]) -> Authority:
    """Which authority a private key belongs to.

    Raises:
        CertificateError: it cannot be read, or to none of these that may sign.
    """
    public = _spki(_ec_key(key).public_key())
    for authority in known:
        mine = _spki(authority.certificate.public_key()) == public
        if mine and _may_sign(authority.certificate):
            return authority
    raise CertificateError("the private key does not belong to a CA in ca.crt")


def new_authority(now: datetime) -> "Made":
    """An authority, with a key that may sign."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Alike names would make two authorities hard to tell apart for people.
    name = _name(f"ebs-webhook authority {serial % 2**32:08x}")
    public, until = key.public_key(), now + _AUTHORITY_LASTS
    certificate = (
        _draft(name, name, public, serial, now=now, until=until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Made(certificate.public_bytes(Encoding.PEM), _pem(key))


def signed(names: Names, authority: Authority, key: bytes, now: datetime) -> "Made":
    """A server certificate.

    Args:
        names: for which it is issued; at least one.
        authority: who signs.
        key: its private key, PEM, which ``signing_key`` has taken.
        now: wall clock, UTC.
    """
    mine = ec.generate_private_key(ec.SECP256R1())
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names.dns]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in names.ips]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(_ec_key(key).public_key())
    until = min(now + _LEAF_LASTS, authority.certificate.not_valid_after_utc)
    draft = _draft(
        _name("ebs-webhook"),
        authority.certificate.subject,
        mine.public_key(),
        x509.random_serial_number(),
        now=now,
        until=until,
    )
    certificate = (
        draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(issuer, critical=False)
        .sign(_ec_key(key), hashes.SHA256())
    )
    return Made(certificate.public_bytes(Encoding.PEM), _pem(mine))


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
        raise CertificateError("the private key does not match the certificate")
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


def _ec_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        found = serialization.load_pem_private_key(key, password=None)
    except _ODD as error:
        raise CertificateError("the private key cannot be read") from error
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise CertificateError("the private key is not an EC key")
    return found


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(Encoding.PEM, kind, serialization.NoEncryption())


def _draft(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    serial: int,
    *,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
