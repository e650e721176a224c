"""The reviews that the webhook's bench sends are what an API server would send."""

import msgspec
import pytest

from tests.bench.hands import BenchError
from tests.bench.webhook_reviews import SPECIMEN, Reviews, claim_name, pod
from tests.bench.webhook_rotation import check
from webhook.model import pod as pods
from webhook.model import review
from webhook.reviews import pod_rules as rules

CLAIMS, ZONES = 30, 3


def read(number: int) -> tuple[bytes, str, review.Request]:
    uid, whole = Reviews(SPECIMEN, CLAIMS, ZONES).request(number)
    head, _, body = whole.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}\r\n".encode() in head
    return head, uid, review.decode(body, review.Json)


@pytest.mark.parametrize("number", [0, 1, 29, 30, 123_456])
def test_a_review_names_its_own_pod_and_two_claims_of_one_zone(number):
    head, uid, request = read(number)
    references = rules.references(pods.read(request.object or {}), request.namespace)
    ordinals = [int(key.removeprefix("default/data-")) for key in references.claims]

    assert head.startswith(b"POST /validate/pods?timeout=2s HTTP/1.1\r\n")
    assert (request.uid, request.subject, request.operation) == (uid, "pods", "CREATE")
    assert len(set(ordinals)) == 2
    assert max(ordinals) < CLAIMS
    assert {ordinal % ZONES for ordinal in ordinals} == {number % ZONES}
    assert SPECIMEN["metadata"]["name"].encode() not in msgspec.json.encode(request.object)


def test_reviews_differ():
    assert len({read(number)[1] for number in range(100)}) == 100
    assert len({Reviews(SPECIMEN, CLAIMS, ZONES).claims_of(number) for number in range(30)}) > 10


def test_a_review_may_be_of_another_namespace_and_its_claims_of_any_length():
    reviews = Reviews(SPECIMEN, CLAIMS, ZONES, name="data-app-{}".format, namespace="team-0")
    head, _, body = reviews.request(7)[1].partition(b"\r\n\r\n")
    request = review.decode(body, review.Json)
    references = rules.references(pods.read(request.object or {}), request.namespace)

    assert f"Content-Length: {len(body)}\r\n".encode() in head
    assert set(references.claims) == {"team-0/data-app-13", "team-0/data-app-16"}


def test_a_specimen_that_the_api_server_filled_in_keeps_all_of_it():
    stored = pod("pod-name-0", ("claim-00-0", "claim-00-1"), nodeName="n", dnsPolicy="ClusterFirst")
    _, whole = Reviews(stored, CLAIMS, ZONES).request(7)
    spec = (review.decode(whole.partition(b"\r\n\r\n")[2], review.Json).object or {})["spec"]

    assert (spec["nodeName"], spec["dnsPolicy"]) == ("n", "ClusterFirst")
    assert [each["name"] for each in spec["volumes"]] == [claim_name(13), claim_name(16)]


@pytest.mark.parametrize(
    ("certificates", "bundles"),
    [
        (["a"], ["A"]),
        (["a", "b"], ["A"]),
        (["a"], ["A", "A B"]),
        (["a", "b"], ["A", "B"]),
        (["a", "b"], ["A", "A B", "A"]),
        (["a", "b", "a"], ["A", "A B"]),
    ],
)
def test_less_than_a_whole_rotation_is_no_result(certificates, bundles):
    with pytest.raises(BenchError, match="no whole rotation"):
        check(certificates, bundles)


def test_a_whole_rotation_is_one():
    check(["a", "b"], ["A", "B A"])
