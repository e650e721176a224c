"""Handshakes in memory, with OpenSSL on both sides."""

import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding

from provisioner.model.errors import Reason, StorageError
from tests.webhook import pairs
from tests.webhook.pairs import NAMES, Issued, self_signed
from webhook.certificates.tls import Contexts

HOST = NAMES.dns[0]
NOW = datetime.now(UTC)  # OpenSSL has a clock of its own


def a_pair() -> pairs.Made:
    return pairs.a_pair(now=NOW)


@dataclass
class Connection:
    """Both ends of a connection whose handshake is over."""

    client: ssl.SSLObject
    server: ssl.SSLObject
    to_client: ssl.MemoryBIO
    to_server: ssl.MemoryBIO

    @property
    def shown(self) -> x509.Certificate:
        der = self.client.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der)

    def ask(self, question: bytes) -> bytes:
        """One round trip; the server answers with the same."""
        self.client.write(question)
        self.server.write(self.server.read(100))
        return self.client.read(100)


def connect(
    front: ssl.SSLContext,
    bundle: bytes = b"",
    *,
    name: str | None = HOST,
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    shows: Issued | None = None,
) -> Connection:
    """Shake hands; a bundle is what the client trusts, without one it trusts everything.

    Raises:
        ssl.SSLError: either side has refused.
    """
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.maximum_version = newest
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    if shows is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(shows.key + shows.certificate)
            file.flush()
            trusting.load_cert_chain(file.name)
    if bundle:
        trusting.load_verify_locations(cadata=bundle.decode())
    else:
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = front.wrap_bio(to_server, to_client, server_side=True)
    pending = [client, server]
    while pending:
        side = pending.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pending.append(side)
    return Connection(client, server, to_client, to_server)


def serving(issued: Issued) -> Contexts:
    contexts = Contexts()
    contexts.load(issued.certificate, issued.key)
    return contexts


def fingerprint(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", NAMES.dns + NAMES.ips)
def test_a_client_that_trusts_the_authority_is_served(name: str, newest: ssl.TLSVersion):
    pair = a_pair()

    connection = connect(
        serving(pair.issued).front, pair.issued.authority, name=name, newest=newest
    )

    assert fingerprint(connection.shown) == fingerprint(pair.leaf.certificate)
    assert connection.client.selected_alpn_protocol() == "http/1.1"
    assert connection.client.version() == newest.name.replace("_", ".")
    assert connection.ask(b"hello") == b"hello"


def test_a_client_that_names_nobody_is_served():
    pair = a_pair()

    assert connect(serving(pair.issued).front, name=None).ask(b"hello") == b"hello"


def test_a_client_that_trusts_another_authority_refuses():
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(serving(a_pair().issued).front, a_pair().issued.authority)


def test_before_the_first_certificate_handshakes_are_refused():
    with pytest.raises(ssl.SSLError):
        connect(Contexts().front)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_versions_that_are_too_old_are_refused():
    with pytest.raises(ssl.SSLError):
        connect(serving(a_pair().issued).front, newest=ssl.TLSVersion.TLSv1_1)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_swap_is_seen_by_the_next_handshake_and_by_no_open_connection(newest: ssl.TLSVersion):
    one, two = a_pair(), a_pair()
    contexts = serving(one.issued)
    before = connect(contexts.front, one.issued.authority, newest=newest)

    contexts.load(two.issued.certificate, two.issued.key)
    after = connect(contexts.front, two.issued.authority, newest=newest)

    assert before.ask(b"still there") == b"still there"
    assert fingerprint(before.shown) == fingerprint(one.leaf.certificate)
    assert fingerprint(after.shown) == fingerprint(two.leaf.certificate)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_nobody_is_given_a_ticket_by_which_to_come_back_without_a_certificate(
    newest: ssl.TLSVersion,
):
    connection = connect(serving(a_pair().issued).front, newest=newest)
    connection.ask(b"tickets come with the first answer")

    session = connection.client.session
    assert session is None or not session.has_ticket


def test_a_certificate_of_another_kind_of_key_takes_its_place():
    contexts = serving(a_pair().issued)
    by_hand = self_signed(NAMES, NOW, rsa_bits=2048)

    contexts.load(by_hand.certificate, by_hand.key)

    shown = connect(contexts.front).shown
    assert fingerprint(shown) == fingerprint(x509.load_pem_x509_certificate(by_hand.certificate))


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_where_callers_need_a_certificate_only_one_of_their_authority_opens(
    newest: ssl.TLSVersion,
):
    mine, theirs = (self_signed(NAMES, NOW, authority=True) for _ in range(2))
    contexts = Contexts(mine.certificate.decode())
    for _ in range(2):  # and a swap changes nothing about it
        issued = a_pair().issued
        contexts.load(issued.certificate, issued.key)

        for shown in (None, theirs):
            with pytest.raises(ssl.SSLError):
                connect(contexts.front, issued.authority, newest=newest, shows=shown)
        connection = connect(contexts.front, issued.authority, newest=newest, shows=mine)
        assert connection.ask(b"hello") == b"hello"
        shown_names = connection.server.getpeercert()
        assert shown_names is not None
        assert shown_names["subject"] == ((("commonName", "by hand"),),)


def a_locked_key(issued: Issued) -> bytes:
    key = serialization.load_pem_private_key(issued.key, password=None)
    locked = BestAvailableEncryption(b"secret")
    return key.private_bytes(Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)


GOOD, OTHER = pairs.issue(NAMES, NOW), pairs.issue(NAMES, NOW)
WEAK = self_signed(NAMES, NOW, rsa_bits=1024)
UNUSABLE = {
    "nothing": (b"", b""),
    "no key": (GOOD.certificate, b""),
    "no certificate": (b"", GOOD.key),
    "another's key": (GOOD.certificate, OTHER.key),
    "a key with a password": (GOOD.certificate, a_locked_key(GOOD)),
    "rubbish": (b"\x00" * 100, b"\xff" * 100),
    "a key that OpenSSL finds too short": (WEAK.certificate, WEAK.key),
}


@pytest.mark.parametrize("unusable", UNUSABLE)
def test_what_cannot_be_loaded_leaves_all_as_it_was(unusable: str):
    pair = a_pair()
    contexts = serving(pair.issued)

    with pytest.raises(StorageError, match="cannot be loaded") as caught:
        contexts.load(*UNUSABLE[unusable])

    assert caught.value.reason is Reason.CERTIFICATE_UNUSABLE
    assert connect(contexts.front, pair.issued.authority).ask(b"hello") == b"hello"


def test_a_certificate_is_nowhere_in_the_file_system(monkeypatch: pytest.MonkeyPatch):
    made: list[int] = []
    memfd = os.memfd_create

    def noted(name: str, flags: int) -> int:
        made.append(memfd(name, flags))
        return made[-1]

    monkeypatch.setattr(os, "memfd_create", noted)
    opened = open_files()
    contexts = serving(a_pair().issued)
    with pytest.raises(StorageError):
        contexts.load(b"", b"")

    assert len(made) == 2
    assert open_files() == opened


def open_files() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):  # noqa: PTH208 -- the folder lists itself
        try:
            found.add(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115 -- "memfd:…" is no path
        except FileNotFoundError:
            continue
    return {name for name in found if not name.startswith("/proc/")}
