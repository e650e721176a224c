import base64
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webhook.pairs import NAMES, NOW, a_pair, self_signed
from webhook import certificates, issuing, tls_secret
from webhook.certificates import Names
from webhook.decide.rotation import Adopt, Make, Pair, Prepare, Prune, Swap
from webhook.issuing import Issued
from webhook.tls_secret import Changes, Held, Secret

Data = Mapping[str, bytes | None]

A, B = issuing.issue(NAMES, NOW), issuing.issue(NAMES, NOW)
IDLE: Changes = {"ca.crt": A.authority, "tls.crt": A.certificate, "tls.key": A.key}
PUBLISHING = IDLE | {
    "ca.crt": B.authority + A.authority,
    "next.crt": B.certificate,
    "next.key": B.key,
}


def a_secret(data: Data, version: str = "7") -> Secret:
    """As the API server sends it."""
    metadata = {"name": "tls", "namespace": "web", "resourceVersion": version}
    values = {key: base64.b64encode(value or b"").decode() for key, value in data.items()}
    document = msgspec.json.encode({"metadata": metadata, "data": values})
    return msgspec.json.decode(document, type=Secret)


def held(data: Data, names: Names = NAMES) -> Held:
    return tls_secret.read(a_secret(data), names)


def after(step: Make | Prepare | Adopt | Swap | Prune, data: Data) -> Held:
    """The Secret after a step, as it is read again."""
    changed = {**data, **tls_secret.after(step, held(data), NAMES, NOW)}
    return held({key: value for key, value in changed.items() if value is not None})


def fingerprint(issued: Issued) -> str:
    return certificates.read_leaf(issued.certificate, issued.key).fingerprint


def authority(issued: Issued) -> str:
    (found,) = certificates.authorities(issued.authority)
    return found.fingerprint


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": b"", "tls.key": None}])
def test_an_empty_secret_is_no_rubbish(data: Changes | None):
    found = held(data) if data is not None else tls_secret.read(None, NAMES)

    assert found.content.serving is None
    assert found.content.problems == ()
    assert found.bundle == b""


def test_a_secret_is_read():
    found = held(IDLE)

    assert found.content.serving == Pair(
        fingerprint(A), authority(A), NOW - timedelta(days=1), NOW + timedelta(days=90)
    )
    assert found.content.upcoming is None
    assert found.content.tidy
    assert found.bundle == A.authority


def test_no_key_is_ever_shown():
    shown = repr([held(PUBLISHING), a_secret(PUBLISHING)])

    assert "PRIVATE" not in shown
    assert "web/tls" in shown
    assert base64.b64encode(A.key).decode()[:40] not in shown


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        ({"tls.key": B.key}, "tls.crt: the private key is not that of the certificate"),
        ({"tls.key": None}, "tls.crt: the private key cannot be read"),
        ({"tls.crt": b"x"}, "tls.crt: the certificate cannot be read"),
        ({"ca.crt": B.authority}, "tls.crt: no authority in ca.crt has signed the certificate"),
    ],
)
def test_what_cannot_be_served_is_told(spoilt: Changes, expected: str):
    content = held(IDLE | spoilt).content

    assert content.serving is None
    assert content.problems == (expected,)


def test_a_bundle_of_rubbish_is_told():
    content = held(IDLE | {"ca.crt": b"rubbish"}).content

    assert content.problems[0] == "ca.crt: it holds no certificate"
    assert not content.tidy


def test_a_certificate_for_other_names_cannot_be_served():
    content = held(IDLE, Names(dns=("elsewhere.web.svc",))).content

    assert content.problems == ("tls.crt: the certificate is not made out to elsewhere.web.svc",)


def test_a_spoilt_next_one_harms_nothing_else():
    content = held(PUBLISHING | {"next.key": A.key}).content

    assert content.serving is not None
    assert content.upcoming is None
    assert content.spoilt_upcoming


def test_an_authority_that_ends_first_ends_the_pair():
    issued = issuing.issue(NAMES, NOW - timedelta(days=300))

    pair = held({"ca.crt": issued.authority, "tls.crt": issued.certificate, "tls.key": issued.key})

    assert pair.content.serving is not None
    assert pair.content.serving.not_after == NOW - timedelta(days=210)


def test_a_self_signed_certificate_is_no_authority_of_itself():
    by_hand = self_signed(NAMES, NOW)
    data: Changes = {
        "ca.crt": by_hand.certificate,
        "tls.crt": by_hand.certificate,
        "tls.key": by_hand.key,
    }

    assert held(data).content.serving is None


def test_a_new_pair_takes_the_place_of_all_that_is_there():
    found = after(Make(), {"ca.crt": A.authority, "tls.crt": b"rubbish", "next.key": b"rubbish"})

    assert found.content.serving is not None
    assert found.content.problems == ()
    assert found.content.authorities == (found.content.serving.authority,)
    assert found.data.keys() == {"ca.crt", "tls.crt", "tls.key"}


def test_what_the_configurations_trust_is_adopted_each_once():
    trusted = certificates.authorities(A.authority + B.authority) * 2

    changes = tls_secret.after(Adopt(), held(IDLE), NAMES, NOW, trusted)

    assert changes == {"ca.crt": A.authority + B.authority}


def test_an_authority_that_has_expired_is_not_adopted():
    old = issuing.issue(NAMES, NOW - timedelta(days=366))
    trusted = certificates.authorities(old.authority)

    assert tls_secret.after(Adopt(), held(IDLE), NAMES, NOW, trusted) == {"ca.crt": A.authority}


def test_a_bundle_does_not_grow_for_ever():
    strangers = b"".join(issuing.issue(NAMES, NOW).authority for _ in range(30))
    trusted = certificates.authorities(strangers)

    changes = tls_secret.after(Adopt(), held(IDLE), NAMES, NOW, trusted)

    known = certificates.authorities(changes["ca.crt"] or b"")
    assert [each.fingerprint for each in known] == [
        authority(A),
        *(each.fingerprint for each in trusted[:9]),
    ]


def test_the_steps_of_a_rotation():
    prepared = after(Prepare(), IDLE)
    swapped = after(Swap(), dict(prepared.data))
    pruned = after(Prune(), dict(swapped.data))

    before, upcoming = prepared.content.serving, prepared.content.upcoming
    assert before is not None
    assert upcoming is not None
    assert before.fingerprint == fingerprint(A)
    assert prepared.content.authorities == (upcoming.authority, before.authority)

    assert swapped.content.serving == upcoming
    assert swapped.content.authorities == prepared.content.authorities

    assert pruned.content.serving == upcoming
    assert pruned.content.authorities == (upcoming.authority,)
    assert pruned.data.keys() == {*IDLE, "retired.crt"}
    assert pruned.content.retired == {before.authority}
    assert pruned.content.tidy


def test_what_was_pruned_is_remembered_until_the_next_rotation():
    swapped = dict(after(Swap(), PUBLISHING).data)
    pruned = dict(after(Prune(), swapped).data)

    assert after(Prepare(), pruned).content.retired == set()
    assert after(Make(), pruned).content.retired == set()


def test_what_others_trust_is_adopted_unless_it_was_pruned():
    other = issuing.issue(NAMES, NOW)
    pruned = dict(after(Prune(), dict(after(Swap(), PUBLISHING).data)).data)
    trusted = certificates.authorities(A.authority + B.authority + other.authority)

    changes = tls_secret.after(Adopt(), held(pruned), NAMES, NOW, trusted)

    assert changes == {"ca.crt": B.authority + other.authority}


def test_a_write_names_what_was_read_and_touches_nothing_else():
    changes: Changes = {"tls.crt": b"new", "next.crt": None}

    body = tls_secret.patched(a_secret(IDLE), changes, "Swap", NOW)

    assert body == {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"ebs-provisioner.io/certificates": "Swap 2026-06-01T12:00:00Z"},
        },
        "data": {"tls.crt": "bmV3", "next.crt": None},
    }


def test_a_secret_that_is_not_there_is_made():
    body = tls_secret.created("tls", {"tls.crt": b"new", "next.crt": None}, "Make", NOW)

    assert (body["metadata"]["name"], body["type"]) == ("tls", "Opaque")
    assert body["data"] == {"tls.crt": "bmV3"}


VALUES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([value for value in PUBLISHING.values() if value]),
    st.sampled_from([A.key, B.key, A.authority]).map(lambda pem: pem[: len(pem) // 2]),
)
KEYS = st.sampled_from([*PUBLISHING, "other", ""])


@given(st.dictionaries(KEYS, VALUES))
def test_whatever_a_secret_holds_a_new_pair_makes_it_good(data: dict[str, Any]):
    found = after(Make(), data)

    assert found.content.serving is not None
    assert found.content.serving.valid_at(NOW)
    assert found.content.problems == ()
    assert found.content.authorities[0] == found.content.serving.authority


def test_certificates_of_one_name_differ():
    assert a_pair().leaf.fingerprint != a_pair().leaf.fingerprint
