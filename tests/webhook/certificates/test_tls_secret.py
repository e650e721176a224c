import base64
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webhook import pairs
from tests.webhook.pairs import NAMES, NOW, Issued, a_pair, self_signed
from webhook.certificates import issuing, tls_secret
from webhook.certificates.issuing import Names
from webhook.certificates.rotation_rules import Adopt, Make, Pair, Sign
from webhook.certificates.tls_secret import Changes, Held, Secret

Data = Mapping[str, bytes | None]

A, B = pairs.issue(NAMES, NOW), pairs.issue(NAMES, NOW)
IDLE: Changes = {
    "ca.crt": A.authority,
    "ca.key": A.authority_key,
    "tls.crt": A.certificate,
    "tls.key": A.key,
}
FORMER = {"next.crt": B.certificate, "next.key": B.key, "retired.crt": B.authority}


def a_secret(data: Data, version: str = "7") -> Secret:
    """As the API server sends it."""
    metadata = {"name": "tls", "namespace": "web", "resourceVersion": version}
    values = {key: base64.b64encode(value or b"").decode() for key, value in data.items()}
    document = msgspec.json.encode({"metadata": metadata, "data": values})
    return msgspec.json.decode(document, type=Secret)


def held(data: Data, names: Names = NAMES) -> Held:
    return tls_secret.read(a_secret(data), names, NOW)


def after(step: Make | Adopt | Sign, data: Data, trusted: bytes = b"") -> Held:
    """The Secret after a step, as it is read again."""
    found = issuing.authorities(trusted)
    changed = {**data, **tls_secret.after(step, held(data), NAMES, NOW, found)}
    return held({key: value for key, value in changed.items() if value is not None})


def fingerprint(issued: Issued) -> str:
    return issuing.read_leaf(issued.certificate, issued.key).fingerprint


def authority(issued: Issued) -> str:
    (found,) = issuing.authorities(issued.authority)
    return found.fingerprint


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": b"", "tls.key": None}])
def test_an_empty_secret_is_no_rubbish(data: Changes | None):
    found = held(data) if data is not None else tls_secret.read(None, NAMES, NOW)

    assert (found.content.authority, found.content.serving) == (None, None)
    assert found.content.problems == ()
    assert found.content.known == ()


def test_a_secret_is_read():
    found = held(IDLE)

    assert found.content.serving == Pair(
        fingerprint(A), authority(A), NOW - timedelta(days=1), NOW + timedelta(days=90)
    )
    assert found.content.authority == Pair(
        authority(A), authority(A), NOW - timedelta(days=1), NOW + timedelta(days=3650)
    )
    assert found.bundle(found.content.known) == A.authority


def test_no_key_is_ever_shown():
    shown = repr([held(IDLE), a_secret(IDLE), issuing.new_authority(NOW)])

    assert "PRIVATE" not in shown
    assert "web/tls" in shown
    assert base64.b64encode(A.key).decode()[:40] not in shown


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        ({"tls.key": B.key}, "tls.crt: the private key does not match the certificate"),
        ({"tls.key": None}, "tls.crt: the private key cannot be read"),
        ({"tls.crt": b"x"}, "tls.crt: the certificate cannot be read"),
        (
            {"tls.crt": B.certificate, "tls.key": B.key},
            "tls.crt: the certificate is not signed by a CA in ca.crt",
        ),
    ],
)
def test_what_cannot_be_served_is_told(spoilt: Changes, expected: str):
    content = held(IDLE | spoilt).content

    assert (content.serving, content.problems) == (None, (expected,))
    assert content.authority is not None


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        ({"ca.key": b"x"}, "ca.key: the private key cannot be read"),
        (
            {"ca.key": B.authority_key},
            "ca.key: the private key does not belong to a CA in ca.crt",
        ),
        ({"ca.key": A.key}, "ca.key: the private key does not belong to a CA in ca.crt"),
        (
            {"ca.key": self_signed(NAMES, NOW, rsa_bits=1024).key},
            "ca.key: the private key is not an EC key",
        ),
    ],
)
def test_what_cannot_sign_is_told(spoilt: Changes, expected: str):
    content = held(IDLE | spoilt).content

    assert (content.authority, content.problems) == (None, (expected,))
    assert content.serving is not None


def test_the_key_of_a_certificate_in_the_bundle_that_may_not_sign_signs_nothing():
    by_hand = self_signed(NAMES, NOW)

    content = held({"ca.crt": by_hand.certificate, "ca.key": by_hand.key}).content

    assert content.authority is None


def test_a_bundle_of_rubbish_is_told():
    content = held(IDLE | {"ca.crt": b"rubbish"}).content

    assert content.problems[0] == "ca.crt: it contains no certificate"


def test_a_certificate_for_other_names_cannot_be_served():
    content = held(IDLE, Names(dns=("elsewhere.web.svc",))).content

    assert content.problems == ("tls.crt: the certificate is not valid for elsewhere.web.svc",)


def test_a_certificate_ends_with_its_authority():
    issued = pairs.issue(NAMES, NOW - timedelta(days=3640))
    again = pairs.reissue(issued, NOW)

    found = held({"ca.crt": again.authority, "tls.crt": again.certificate, "tls.key": again.key})

    assert found.content.serving is not None
    assert found.content.serving.not_after == NOW + timedelta(days=10)


def test_a_self_signed_certificate_is_no_authority_of_itself():
    by_hand = self_signed(NAMES, NOW)
    data: Changes = {
        "ca.crt": by_hand.certificate,
        "tls.crt": by_hand.certificate,
        "tls.key": by_hand.key,
    }

    assert held(data).content.serving is None


def test_a_new_authority_stands_before_all_that_is_known_or_trusted():
    other = pairs.issue(NAMES, NOW)

    found = after(Make(), IDLE | FORMER, B.authority + other.authority + A.authority)

    assert found.content.authority is not None
    assert found.content.known == (
        found.content.authority.fingerprint,
        *(authority(each) for each in (B, other, A)),
    )
    assert found.content.serving == held(IDLE).content.serving
    assert found.data.keys() == IDLE.keys()


def test_an_authority_that_has_expired_is_known_no_more():
    old = pairs.issue(NAMES, NOW - timedelta(days=3651))

    found = after(Make(), {"ca.crt": old.authority + A.authority}, old.authority)

    assert found.content.known[1:] == (authority(A),)


def test_a_bundle_does_not_grow_for_ever():
    strangers = b"".join(pairs.issue(NAMES, NOW).authority for _ in range(30))

    found = after(Make(), IDLE, strangers)

    trusted = issuing.authorities(strangers)
    assert found.content.known[1:] == tuple(each.fingerprint for each in trusted[:9])


def test_what_is_adopted_is_trusted_beside_and_a_new_certificate_is_signed():
    found = after(Adopt(), IDLE | FORMER, A.authority + B.authority)

    assert found.content.known == (authority(A), authority(B))
    assert found.content.serving is not None
    assert found.content.serving.authority == authority(A)
    assert found.content.serving.fingerprint != fingerprint(A)


def test_a_new_certificate_is_signed_by_the_authority_that_is_there():
    found = after(Sign(), IDLE | FORMER | {"tls.crt": b"rubbish"})

    assert found.content.serving is not None
    assert found.content.serving.authority == authority(A)
    assert found.data["ca.crt"] == A.authority
    assert found.data.keys() == IDLE.keys()


def test_a_write_names_what_was_read_and_touches_nothing_else():
    changes: Changes = {"tls.crt": b"new", "next.crt": None}

    body = tls_secret.patched(a_secret(IDLE), changes, "Sign", NOW)

    assert body == {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"ebs-provisioner.io/certificates": "Sign 2026-06-01T12:00:00Z"},
        },
        "data": {"tls.crt": "bmV3", "next.crt": None},
    }


def test_a_secret_that_is_not_there_is_made():
    body = tls_secret.created("tls", {"tls.crt": b"new", "next.crt": None}, "Make", NOW)

    assert (body["metadata"]["name"], body["type"]) == ("tls", "Opaque")
    assert body["data"] == {"tls.crt": "bmV3"}


VALUES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([value for value in (IDLE | FORMER).values() if value]),
    st.sampled_from([A.key, B.key, A.authority]).map(lambda pem: pem[: len(pem) // 2]),
)
KEYS = st.sampled_from([*IDLE, *FORMER, "other", ""])


@given(st.dictionaries(KEYS, VALUES))
def test_whatever_a_secret_holds_two_steps_make_it_good(data: dict[str, Any]):
    made = after(Make(), data)
    found = after(Sign(), dict(made.data)).content

    assert found.authority is not None
    assert found.serving is not None
    assert found.serving.authority == found.authority.fingerprint == found.known[0]
    assert found.serving.valid_at(NOW)
    assert found.problems == ()


def test_certificates_of_one_name_differ():
    assert a_pair().leaf.fingerprint != a_pair().leaf.fingerprint
