"""What a review takes to decode, however its 10 MiB are made up."""

import tracemalloc

import msgspec
import pytest

from tests.webhook.front_world import PODS, VOLUMES, fine, review
from tests.webhook.serving.test_dispatch import LONG_S, counted, dispatcher, raises, response_of
from webhook.model.review import MOST_PARTS
from webhook.serving.server import Limits

MIB = 1 << 20


def filled(part: bytes, *, where: str = "object", parts: int | None = None) -> bytes:
    """A review with a list of so many of a part, or of as many as a body may hold."""
    whole = review()
    whole["request"][where] = {"data": ["x"]}
    body = msgspec.json.encode(whole)
    number = (Limits().body - len(body)) // (len(part) + 1) if parts is None else parts
    return body.replace(b'["x"]', b"[" + b",".join([part] * number) + b"]")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("part", [b"{}", b"[]", b'{"a":1}', b"[[]]", b"0.1", b'"ab"'])
async def test_what_has_too_many_parts_is_answered_by_the_policy_and_never_decoded(
    part: bytes, *, strict: bool
) -> None:
    it, body = dispatcher(raises, strict=strict), filled(part)
    tracemalloc.start()
    try:
        response = response_of(await it.answer(PODS, body, LONG_S))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2 * Limits().body + MIB  # its text without what is quoted, for a moment
    assert (response["uid"], response["allowed"]) == ("u-1", not strict)
    if strict:
        assert response["status"]["code"] == 422
        assert "more than 50000 fields" in response["status"]["message"]
        assert "try again" not in response["status"]["message"]
    else:
        assert "more than 50000 fields" in response["warnings"][0]
    assert counted(it, "denied" if strict else "allowed", "TooManyParts") == 1.0


@pytest.mark.parametrize(
    ("part", "parts", "most"),
    [
        (b"{}", 20_000, 4 * MIB),
        (b'{"a":1}', 20_000, 8 * MIB),
        (b"[]", 20_000, 4 * MIB),
        (b'"ab"', 40_000, 4 * MIB),
        # One wide character, and each takes four bytes.
        ('"' + "\U0001f4be" + "x" * (7 * MIB) + '"', 1, 40 * MIB),
    ],
)
async def test_what_is_decoded_takes_little_more_than_its_text(
    part: bytes | str, parts: int, most: int
) -> None:
    it = dispatcher(fine)
    body = filled(part if isinstance(part, bytes) else part.encode(), parts=parts)
    tracemalloc.start()
    try:
        response = response_of(await it.answer(PODS, body, LONG_S))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < most
    assert response == {"uid": "u-1", "allowed": True}


async def test_what_no_rule_reads_is_not_decoded() -> None:
    body = filled(b"{}", where="oldObject", parts=MOST_PARTS // 3)
    tracemalloc.start()
    try:
        response = response_of(await dispatcher(fine).answer(PODS, body, LONG_S))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < MIB / 2
    assert response == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize("kept", [b'{"volumes":[%s]}', b'{"old":"%s"}'], ids=["field", "text"])
async def test_a_pod_with_an_inline_volume_is_never_let_through_unread(kept: bytes) -> None:
    """Whoever adds enough to a pod could else have another tenant's volume."""
    inline = b'{"awsElasticBlockStore":{"volumeID":"vol-0123456789abcdef0"}}'
    is_text = kept.startswith(b'{"old"')
    inline = inline.replace(b'"', rb"\"") if is_text else inline
    body = filled(b"{}", parts=MOST_PARTS).replace(b'{"data":', kept[:-1] % inline + b',"data":', 1)
    response = response_of(await dispatcher(fine).answer(PODS, body, LONG_S))

    assert response["allowed"] == is_text
    if not is_text:
        assert response["status"]["code"] == 403
        assert "make the pod smaller" in response["status"]["message"]


@pytest.mark.parametrize("text", ["," * 50_001, '\\"{[,' * 20_000, "\\\\" * 30_000 + "," * 50_001])
async def test_commas_within_text_are_no_parts(text: str) -> None:
    body = msgspec.json.encode(review(object={"metadata": {"annotations": {"x": text}}}))
    response = response_of(await dispatcher(fine).answer(PODS, body, LONG_S))

    assert response == {"uid": "u-1", "allowed": True}


async def test_a_body_of_nothing_but_quotes_is_not_cut_into_pieces() -> None:
    body = b'"' * (4 * MIB) + b"," * (4 * MIB)
    tracemalloc.start()
    try:
        reply = await dispatcher(fine).answer(PODS, body, LONG_S)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert reply.status == 400
    assert peak < 9 * MIB


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("terms", "expressions", "values"), [(501, 0, 0), (100, 5, 1), (1, 1, 10_000)]
)
async def test_an_affinity_of_too_many_expressions_is_not_judged(
    terms: int, expressions: int, values: int, *, strict: bool
) -> None:
    named = [{"key": "k", "operator": "In", "values": ["z"] * values}] * expressions
    required = {"nodeSelectorTerms": [{"matchExpressions": named}] * terms}
    spec = {"nodeAffinity": {"required": required}}
    body = msgspec.json.encode(review("persistentvolumes", object={"spec": spec}))
    it = dispatcher(raises, strict=strict)
    response = response_of(await it.answer(VOLUMES, body, LONG_S))

    said = response["status"]["message"] if strict else response["warnings"][0]
    assert "more than 500 terms and expressions" in said
    assert response.get("status", {}).get("code") == (422 if strict else None)
