"""Keys, certificates and tokens of one throw-away control plane."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from provisioner.sandbox.network.addresses import KUBERNETES, ROUTER

LIFE = dt.timedelta(days=7)
"""A sandbox lives for minutes; a test session that was forgotten over a weekend still works."""

USERS = {
    "admin": "system:masters",
    "kube-controller-manager": "system:masters",
    "kube-scheduler": "system:masters",
    "kwok": "system:masters",
    "snapshot-controller": "system:masters",
    "coredns": "system:masters",
}
"""Who may do all; the controller under test is not among them. Names show in the audit log."""


_API_SERVER = (
    *("127.0.0.1", ROUTER, KUBERNETES),
    *("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    "kubernetes.default.svc.cluster.local",
)
"""What clients on the machine, on real nodes and in their pods call it."""

_AUTHORITY = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ebs-provisioner sandbox")])


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of a certificate and of its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files that the API server is started with, and each user's token."""

    folder: Path
    tokens: dict[str, str]
    authority_key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def authority(self) -> Path:
        """The certificate that clients trust."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The API server's own."""
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        """The API server's private key."""
        return self.folder / "server.key"

    @property
    def service_account_key(self) -> Path:
        """Signs and checks the tokens of service accounts."""
        return self.folder / "service-accounts.key"

    @property
    def token_file(self) -> Path:
        """What ``--token-auth-file`` takes."""
        return self.folder / "tokens.csv"

    def client(self, name: str, group: str) -> Pair:
        """Write a certificate that a client shows: of the user ``name`` in one group."""
        subject = [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _certificate(x509.Name(subject), _AUTHORITY, key.public_key())
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self.authority_key, hashes.SHA256())
        )
        return self._written(name, certificate, key)

    def server(self, name: str, hosts: Sequence[str]) -> Pair:
        """Write a certificate that a server shows, at these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _certificate(subject, _AUTHORITY, key.public_key())
            .add_extension(_names(hosts), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self.authority_key, hashes.SHA256())
        )
        return self._written(f"{name}-server", certificate, key)

    def _written(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> Pair:
        stem = name.replace(":", "-")
        made = Pair(self.folder / f"{stem}.crt", self.folder / f"{stem}.key")
        made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        made.key.write_bytes(_pem(key))
        return made


def create(folder: Path) -> Credentials:
    """Write fresh credentials into ``folder``, readable by us alone. Elliptic curves: 3 ms."""
    folder.mkdir(mode=0o700, parents=True)
    authority_key, server_key, account_key = (
        ec.generate_private_key(ec.SECP256R1()) for _ in range(3)
    )
    tokens = {user: secrets.token_hex(16) for user in USERS}
    made = Credentials(folder, tokens, authority_key)
    authority = (
        _certificate(_AUTHORITY, _AUTHORITY, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    server = (
        _certificate(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]),
            _AUTHORITY,
            server_key.public_key(),
        )
        .add_extension(_names(_API_SERVER), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    made.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    made.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(_pem(server_key))
    made.service_account_key.write_bytes(_pem(account_key))
    rows = [f'{made.tokens[user]},{user},{user},"{group}"' for user, group in USERS.items()]
    made.token_file.write_text("\n".join(rows) + "\n")
    return made


def _names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_name(host) for host in hosts])


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + LIFE)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        # PKCS8 is not read back by --service-account-key-file.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def write_kubeconfig(
    path: Path, *, server: str, authority: Path, token: str = "", pair: Pair | None = None
) -> Path:
    """Write a kubeconfig for one bearer of ``token``, or for whom a certificate names.

    JSON, which every YAML reader reads.
    """
    user = (
        {"token": token}
        if pair is None
        else {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    )
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "sandbox",
                "cluster": {"server": server, "certificate-authority": str(authority)},
            }
        ],
        "users": [{"name": "sandbox", "user": user}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
        "current-context": "sandbox",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1))
    return path
