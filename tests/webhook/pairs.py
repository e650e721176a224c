"""Certificates for tests: of the product's making, of another's, and spoilt ones."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from webhook.certificates import issuing
from webhook.certificates.issuing import Leaf, Names

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NAMES = Names(
    dns=("ebs-webhook.ebs-provisioner.svc", "ebs-webhook.ebs-provisioner.svc.cluster.local"),
    ips=("127.0.0.1", "::1"),
)


@dataclass(frozen=True)
class Issued:
    """A server certificate, its key, and the authority that signed it with its key, as PEM."""

    authority: bytes
    certificate: bytes
    key: bytes
    authority_key: bytes = b""


def issue(names: Names, now: datetime) -> Issued:
    """A certificate of an authority of its own, made at this time."""
    made = issuing.new_authority(now)
    (authority,) = issuing.authorities(made.certificate)
    leaf = issuing.signed(names, authority, made.key, now)
    return Issued(made.certificate, leaf.certificate, leaf.key, made.key)


def reissue(of: Issued, now: datetime, names: Names = NAMES) -> Issued:
    """A later certificate of the same authority."""
    (authority,) = issuing.authorities(of.authority)
    leaf = issuing.signed(names, authority, of.authority_key, now)
    return replace(of, certificate=leaf.certificate, key=leaf.key)


@dataclass(frozen=True)
class Made:
    """What ``issue`` made, and what is read of it."""

    issued: Issued
    leaf: Leaf


def a_pair(names: Names = NAMES, now: datetime = NOW) -> Made:
    issued = issue(names, now)
    return Made(issued, issuing.read_leaf(issued.certificate, issued.key))


def self_signed(
    names: Names, now: datetime, *, rsa_bits: int = 0, authority: bool = False
) -> Issued:
    """A certificate that nobody else has signed, as people make them."""
    key = (
        rsa.generate_private_key(public_exponent=65537, key_size=rsa_bits)
        if rsa_bits
        else ec.generate_private_key(ec.SECP256R1())
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "by hand")])
    names_of: list[x509.GeneralName] = [x509.DNSName(each) for each in names.dns]
    if authority:
        names_of += [x509.IPAddress(ipaddress.ip_address(each)) for each in names.ips]
    constraints = x509.BasicConstraints(ca=authority, path_length=None)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName(names_of), critical=False)
        .add_extension(constraints, critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    private = key.private_bytes(
        Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Issued(pem, pem, private)
