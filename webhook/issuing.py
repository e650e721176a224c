"""An authority and a server certificate of our own: ECDSA on P-256, as PEM.

Nothing at rest can sign: an authority's key is dropped as soon as it has signed its one
certificate, so each renewal brings an authority of its own. Go's verification, which is the API
server's, wants the names as SubjectAlternativeName and ignores the common name.
"""

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from webhook.certificates import Names

# The clock that signs may be an hour ahead, and the one that checks an hour behind.
_BACKDATED = timedelta(days=1)
_LEAF_LASTS = timedelta(days=90)
_AUTHORITY_LASTS = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Issued:
    """A new server certificate, its key, and the authority that signed it, as PEM."""

    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)


def issue(names: Names, now: datetime) -> Issued:
    """A new authority, and a server certificate that it has signed: ECDSA on P-256.

    Args:
        names: who the certificate is made out to; at least one.
        now: wall clock, UTC.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _signed_authority(authority_key, now)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed_leaf(key.public_key(), names, authority, authority_key, now)
    return Issued(
        authority.public_bytes(Encoding.PEM),
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(
            Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def _signed_authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    serial = x509.random_serial_number()
    # Alike names would make two authorities hard to tell apart for people.
    name = _name(f"ebs-webhook authority {serial % 2**32:08x}")
    return (
        _draft(name, name, key.public_key(), serial, now=now, lasts=_AUTHORITY_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _signed_leaf(
    public: ec.EllipticCurvePublicKey,
    names: Names,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> x509.Certificate:
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names.dns]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in names.ips]
    ski = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    aki = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ski)
    serial = x509.random_serial_number()
    return (
        _draft(_name("ebs-webhook"), authority.subject, public, serial, now=now, lasts=_LEAF_LASTS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(aki, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _draft(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    serial: int,
    *,
    now: datetime,
    lasts: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lasts)
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
