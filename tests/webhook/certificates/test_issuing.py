import ipaddress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding
from cryptography.x509 import verification
from hypothesis import example, given
from hypothesis import strategies as st

from tests.webhook import pairs
from tests.webhook.pairs import NAMES, NOW, a_pair, self_signed
from webhook.certificates import issuing
from webhook.certificates.issuing import CertificateError, Names


@pytest.mark.parametrize(
    ("more", "ips"),
    [
        (["2001:DB8::10"], ("2001:db8::10",)),
        (["2001:db8:0:0:0:0:0:10", "2001:DB8::10"], ("2001:db8::10",)),
        (["::ffff:10.0.0.1"], (str(ipaddress.ip_address("::ffff:10.0.0.1")),)),
        (["10.0.0.1", "Webhook.Example.com", "*.example.com"], ("10.0.0.1",)),
    ],
)
def test_however_an_address_is_spelled_the_certificate_for_it_covers_it(
    more: list[str], ips: tuple[str, ...]
):
    names = Names.of_service("ebs-webhook", "ebs-provisioner", more)

    assert names.ips == ips
    assert pairs.a_pair(names).leaf.lacks(names) == []


def loaded(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def extension(certificate: x509.Certificate, kind: type[x509.ExtensionType]) -> object:
    return certificate.extensions.get_extension_for_class(kind).value


def verify(chain: bytes, bundle: bytes, subject: verification.Subject, now: datetime) -> None:
    """Another reading of RFC 5280 than ours: that of cryptography's own verifier."""
    store = verification.Store(x509.load_pem_x509_certificates(bundle))
    policy = verification.PolicyBuilder().store(store).time(now)
    leaf, *rest = x509.load_pem_x509_certificates(chain)
    policy.build_server_verifier(subject).verify(leaf, rest)


@pytest.mark.parametrize(
    "subject",
    [
        *(x509.DNSName(name) for name in NAMES.dns),
        *(x509.IPAddress(ipaddress.ip_address(each)) for each in NAMES.ips),
    ],
    ids=lambda subject: str(subject.value),
)
def test_what_is_issued_is_valid_for_each_of_its_names(subject: verification.Subject):
    issued = pairs.issue(NAMES, NOW)

    verify(issued.certificate, issued.authority, subject, NOW)


def test_what_is_issued_is_valid_for_no_other_name_and_by_no_other_authority():
    issued, other = pairs.issue(NAMES, NOW), pairs.issue(NAMES, NOW)

    with pytest.raises(verification.VerificationError):
        verify(issued.certificate, issued.authority, x509.DNSName("other.example"), NOW)
    with pytest.raises(verification.VerificationError):
        verify(issued.certificate, other.authority, x509.DNSName(NAMES.dns[0]), NOW)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_an_hour_off_finds_it_valid_at_once(hours: int):
    issued = pairs.issue(NAMES, NOW)
    later = NOW + timedelta(hours=hours)

    verify(issued.certificate, issued.authority, x509.DNSName(NAMES.dns[0]), later)


def test_it_is_of_the_kind_that_was_chosen():
    issued = pairs.issue(NAMES, NOW)
    authority, leaf = loaded(issued.authority), loaded(issued.certificate)
    key = serialization.load_pem_private_key(issued.key, password=None)

    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert extension(authority, x509.BasicConstraints) == x509.BasicConstraints(
        ca=True, path_length=0
    )
    assert extension(leaf, x509.BasicConstraints) == x509.BasicConstraints(
        ca=False, path_length=None
    )
    assert leaf.not_valid_after_utc - NOW == timedelta(days=90)
    assert authority.not_valid_after_utc > leaf.not_valid_after_utc
    assert leaf.serial_number.bit_length() > 64


def test_the_key_of_an_authority_is_nowhere():
    issued = pairs.issue(NAMES, NOW)
    key = serialization.load_pem_private_key(issued.key, password=None)

    assert key.public_key() != loaded(issued.authority).public_key()
    assert b"PRIVATE" not in issued.authority + issued.certificate
    assert issued.key.decode() not in repr(issued)


def test_names_longer_than_a_common_name_may_be():
    names = Names.of_service("s" * 63, "n" * 63)
    issued = pairs.issue(names, NOW)

    verify(issued.certificate, issued.authority, x509.DNSName(names.dns[0]), NOW)


def test_a_service_is_called_as_the_api_server_does():
    assert Names.of_service("hook", "web") == Names(
        dns=("hook.web.svc", "hook.web.svc.cluster.local")
    )


def test_it_may_be_called_by_other_hosts_and_addresses_too():
    names = Names.of_service("hook", "web", ["127.0.0.1", "::1", "localhost"])

    assert names.dns == ("hook.web.svc", "hook.web.svc.cluster.local", "localhost")
    assert names.ips == ("127.0.0.1", "::1")


def test_a_certificate_is_told_by_its_fingerprint_alone():
    """A log line or a failed comparison does not print, nor compare, the whole of it."""
    issued = pairs.issue(NAMES, NOW)
    leaf = issuing.read_leaf(issued.certificate, issued.key)
    (authority,) = issuing.authorities(issued.authority)
    other = pairs.issue(NAMES, NOW)

    for each in (leaf, authority):
        assert "certificate=" not in repr(each)
        another = x509.load_pem_x509_certificate(other.certificate)
        assert replace(each, certificate=another) == each


def test_a_pair_is_read():
    issued = pairs.issue(NAMES, NOW)
    leaf = issuing.read_leaf(issued.certificate, issued.key)

    assert leaf.lacks(NAMES) == []
    assert leaf.not_after == NOW + timedelta(days=90)
    assert issuing.signer(leaf, issuing.authorities(issued.authority)) is not None


def test_names_that_are_missing_are_told():
    leaf = a_pair(Names(dns=("a.svc", "*.web.svc"), ips=("10.0.0.1",))).leaf

    assert leaf.lacks(Names(dns=("a.svc", "B.web.svc"), ips=("10.0.0.1",))) == []
    assert leaf.lacks(Names(dns=("b.svc", "b.c.web.svc", "web.svc"), ips=("10.0.0.2",))) == [
        "b.svc",
        "b.c.web.svc",
        "web.svc",
        "10.0.0.2",
    ]


def test_a_key_that_belongs_to_another_certificate():
    one, other = pairs.issue(NAMES, NOW), pairs.issue(NAMES, NOW)

    with pytest.raises(CertificateError, match="does not match the certificate"):
        issuing.read_leaf(one.certificate, other.key)


def test_a_key_with_a_password():
    issued = pairs.issue(NAMES, NOW)
    key = serialization.load_pem_private_key(issued.key, password=None)
    locked = key.private_bytes(
        Encoding.PEM, serialization.PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )

    with pytest.raises(CertificateError, match="private key cannot be read"):
        issuing.read_leaf(issued.certificate, locked)


def test_an_error_quotes_nothing_of_a_key():
    issued = pairs.issue(NAMES, NOW)
    spoilt = issued.key.replace(b"\nM", b"\n!!", 1)

    with pytest.raises(CertificateError) as caught:
        issuing.read_leaf(issued.certificate, spoilt)

    assert str(caught.value) == "the private key cannot be read"


def test_an_authority_that_may_not_sign_is_none():
    pair = self_signed(NAMES, NOW)

    leaf = issuing.read_leaf(pair.certificate, pair.key)

    assert issuing.signer(leaf, issuing.authorities(pair.certificate)) is None


def test_the_signer_is_found_among_others():
    issued = [pairs.issue(NAMES, NOW) for _ in range(3)]
    known = issuing.authorities(b"".join(each.authority for each in issued))
    leaf = issuing.read_leaf(issued[1].certificate, issued[1].key)

    assert issuing.signer(leaf, known) is known[1]
    assert issuing.signer(leaf, [known[0], known[2]]) is None


def test_a_bundle_is_read_in_order_each_authority_once():
    one, two = pairs.issue(NAMES, NOW).authority, pairs.issue(NAMES, NOW).authority
    broken = one.replace(b"\nM", b"\n!", 1)

    found = issuing.authorities(b"# two\n" + two + broken + b"\r\n" + one + two)

    assert issuing.bundle(found) == two + one
    assert issuing.authorities(issuing.bundle(found)) == found


def test_an_authority_expires():
    (authority,) = issuing.authorities(pairs.issue(NAMES, NOW).authority)

    assert not authority.expired(NOW + timedelta(days=3649))
    assert authority.expired(NOW + timedelta(days=3651))


GOOD = pairs.issue(NAMES, datetime(2026, 1, 1, tzinfo=UTC))


@given(st.binary(max_size=200), st.integers(0, 2000), st.sampled_from(["cut", "splice", "alone"]))
@example(b"", 0, "alone")
@example(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0, "alone")
def test_rubbish_is_told_in_one_sentence_and_raises_nothing_else(rubbish: bytes, at: int, how: str):
    def spoil(good: bytes) -> bytes:
        return {"cut": good[:at], "splice": good[:at] + rubbish + good[at:], "alone": rubbish}[how]

    told = {
        why_not(spoil(GOOD.certificate), GOOD.key),
        why_not(GOOD.certificate, spoil(GOOD.key)),
        why_not(rubbish, rubbish),
    }

    assert told <= {
        "",  # spoilt outside of what is read
        "the certificate cannot be read",
        "the private key cannot be read",
        "the private key does not match the certificate",
    }
    assert all(len(a.fingerprint) == 64 for a in issuing.authorities(spoil(GOOD.authority)))


def why_not(chain: bytes, key: bytes) -> str:
    try:
        issuing.read_leaf(chain, key)
    except CertificateError as error:
        return str(error)
    return ""
