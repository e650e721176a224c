"""Every call gets an answer, whatever the handler does and whatever the body is."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from tests.webhook.front_world import PODS, VOLUMES, fine, review
from webhook.metrics import WebhookMetrics
from webhook.model.pod import Pod, PodMeta
from webhook.model.review import Answer, Handler, Json, Request, RequestOf, allow, deny
from webhook.serving.dispatch import Dispatcher, Reply

SHORT_S = 0.05
LONG_S = 5.0


async def raises(_: Request, __: float) -> Answer:
    raise KeyError("spec")


async def hangs(_: Request, __: float) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def is_cancelled(_: Request, __: float) -> Answer:
    raise asyncio.CancelledError


async def answers_nonsense(_: Request, __: float) -> Answer:
    return cast("Answer", "yes")


async def denies_with_an_odd_code(_: Request, __: float) -> Answer:
    return Answer(allowed=False, why="Odd", message="no", code=299)


async def allows_what_json_cannot_hold(_: Request, __: float) -> Answer:
    return allow("Odd", patch=[{"op": "add", "path": "/metadata/labels", "value": object()}])


def dispatcher(handler: Handler, *, strict: bool = False, most_in_flight: int = 256) -> Dispatcher:
    return Dispatcher(
        {PODS: handler, VOLUMES: handler},
        strict=strict,
        metrics=WebhookMetrics(),
        most_in_flight=most_in_flight,
    )


def response_of(reply: Reply) -> Json:
    assert reply.status == 200, reply.body
    response: Json = msgspec.json.decode(reply.body)["response"]
    return response


async def answered(
    handler: Handler, timeout_s: float = LONG_S, *, strict: bool = False, path: str = PODS
) -> Json:
    it = dispatcher(handler, strict=strict)
    resource = path.rpartition("/")[2]
    reply = await it.answer(path, msgspec.json.encode(review(resource)), timeout_s)
    await it.aclose()
    return response_of(reply)


def counted(it: Dispatcher, outcome: str, reason: str, path: str = PODS) -> float | None:
    labels = {"path": path, "outcome": outcome, "reason": reason}
    return it._metrics.registry.get_sample_value("ebs_webhook_reviews_total", labels)


@pytest.mark.parametrize("outcome", ["allowed", "denied"])
async def test_what_alerts_watch_is_counted_from_zero(outcome: str) -> None:
    it = dispatcher(fine, strict=outcome == "denied")

    for reason in ("InternalError", "BudgetExhausted", "Overloaded", "TooManyParts"):
        assert counted(it, outcome, reason) == 0
    await it.aclose()


async def test_gives_the_handler_the_request_and_a_deadline_within_the_budget() -> None:
    seen: list[tuple[RequestOf[Pod], float]] = []

    async def remember(request: RequestOf[Pod], deadline: float) -> Answer:
        seen.append((request, deadline - asyncio.get_running_loop().time()))
        return deny("ZoneConflict", "two zones")

    response = await answered(remember)

    ((request, left_s),) = seen
    assert request.object == Pod(metadata=PodMeta(name="it"))
    assert LONG_S - 1 < left_s < LONG_S
    assert response["status"] == {
        "status": "Failure",
        "message": "two zones",
        "reason": "Invalid",
        "code": 422,
    }


@pytest.mark.parametrize("spec", [{"volumes": 7}, [], {"affinity": {"nodeAffinity": "x"}}])
async def test_a_pod_with_a_part_of_a_wrong_type_says_nothing(spec: Any) -> None:
    async def expect_nothing(request: RequestOf[Pod], _: float) -> Answer:
        return allow("Empty" if request.object == Pod() else "Read")

    it = dispatcher(expect_nothing)
    body = review(object={"metadata": {"name": "it"}, "spec": spec})
    await it.answer(PODS, msgspec.json.encode(body), LONG_S)

    assert counted(it, "allowed", "Empty") == 1.0


@pytest.mark.parametrize(
    ("handler", "timeout_s", "why"),
    [
        (raises, LONG_S, "InternalError"),
        (is_cancelled, LONG_S, "InternalError"),
        (answers_nonsense, LONG_S, "InternalError"),
        (denies_with_an_odd_code, LONG_S, "InternalError"),
        (allows_what_json_cannot_hold, LONG_S, "InternalError"),
        (hangs, SHORT_S, "BudgetExhausted"),
        (hangs, 0.0, "BudgetExhausted"),
        (hangs, -1.0, "BudgetExhausted"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
async def test_a_handler_that_fails_is_replaced_by_the_policy(
    handler: Handler, timeout_s: float, why: str, *, strict: bool
) -> None:
    it = dispatcher(handler, strict=strict)
    body = msgspec.json.encode(review("persistentvolumes"))

    async with asyncio.timeout(30):
        response = response_of(await it.answer(VOLUMES, body, timeout_s))

    assert response["allowed"] is not strict
    if strict:
        assert response["status"]["code"] == 503
        assert response["status"]["details"] == {"retryAfterSeconds": 1}
    else:
        assert "unchecked" in response["warnings"][0]
    assert counted(it, "denied" if strict else "allowed", why, VOLUMES) == 1.0


async def test_a_handler_that_does_not_obey_holds_nothing_up_and_comes_too_late() -> None:
    release = asyncio.Event()

    async def disobeys(_: Request, __: float) -> Answer:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
        raise RuntimeError("too late for anybody to hear")

    it = dispatcher(disobeys)
    async with asyncio.timeout(30):
        response = response_of(await it.answer(PODS, msgspec.json.encode(review()), SHORT_S))
    still_running = len(it._running)
    release.set()
    await it.aclose()

    assert response["allowed"]
    assert still_running == 1
    assert not it._running


async def test_a_call_that_is_given_up_cancels_its_handler() -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def waits(_: Request, __: float) -> Answer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError("unreachable")

    it = dispatcher(waits)
    call = asyncio.create_task(it.answer(PODS, msgspec.json.encode(review()), LONG_S))
    await begun.wait()
    call.cancel()
    async with asyncio.timeout(30):
        await over.wait()

    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("strict", [False, True])
async def test_beyond_the_most_in_flight_the_policy_answers(*, strict: bool) -> None:
    release = asyncio.Event()

    async def waits(_: Request, __: float) -> Answer:
        await release.wait()
        return allow("Fine")

    it = dispatcher(waits, strict=strict, most_in_flight=2)
    body = msgspec.json.encode(review())
    first = [asyncio.create_task(it.answer(PODS, body, LONG_S)) for _ in range(2)]
    await asyncio.sleep(0)
    third = response_of(await it.answer(PODS, body, LONG_S))
    release.set()

    assert third["allowed"] is not strict
    assert counted(it, "denied" if strict else "allowed", "Overloaded") == 1.0
    assert [response_of(await call) for call in first] == [{"uid": "u-1", "allowed": True}] * 2
    assert response_of(await it.answer(PODS, body, LONG_S)) == {"uid": "u-1", "allowed": True}


async def test_sends_a_patch() -> None:
    async def labels(_: Request, __: float) -> Answer:
        return allow("Labelled", patch=[{"op": "add", "path": "/labels", "value": {"a": "b"}}])

    response = await answered(labels, path=VOLUMES)

    assert response["patchType"] == "JSONPatch"


async def test_an_unknown_path_has_no_webhook() -> None:
    assert (await dispatcher(fine).answer("/validate/jobs", b"{}", LONG_S)).status == 404


BROKEN: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"no JSON",
    "half of it": msgspec.json.encode(review())[:-5],
    "no UTF-8": b'{"apiVersion": "\xff"}',
    "half a surrogate": b'{"apiVersion": "\\ud800"}',
    "too deep": b"[" * 100_000,
    "deep within": b'{"request": {"object": {"a": ' + b"[" * 100_000,
    "a number": b"7",
    "no kind": b"{}",
    "the version before": msgspec.json.encode(
        review() | {"apiVersion": "admission.k8s.io/v1beta1"}
    ),
    "another kind": msgspec.json.encode(review() | {"kind": "Pod"}),
    "no request": msgspec.json.encode(review() | {"request": None}),
    "no uid": msgspec.json.encode(review(uid="")),
    "a uid that is no text": msgspec.json.encode(review(uid=cast("str", 7))),
    "a uid without end": msgspec.json.encode(review(uid="u" * 129)),
    "a kind without end": msgspec.json.encode(review() | {"kind": "x " * 10_000}),
    "an object that is a list": msgspec.json.encode(review(object=[])),
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
async def test_a_malformed_review_gets_one_sentence(body: bytes) -> None:
    reply = await dispatcher(fine).answer(PODS, body, LONG_S)

    assert reply.status == 400
    assert b"AdmissionReview" in reply.body
    assert reply.body.count(b"\n") == 1
    assert len(reply.body) < 500


def deep(pod: Json, parts: int = 0) -> bytes:
    """A review of a pod with field sets as deep as the API server takes them."""
    fields = '{"f:a":' * 9_900 + "{}" + "}" * 9_900
    body = msgspec.json.encode(review(object=pod | {"metadata": {"managedFields": [7]}}))
    return body.replace(b"[7]", f'[{{"fieldsV1":{fields}}}{",{}" * parts}]'.encode())


INLINE = {"spec": {"volumes": [{"awsElasticBlockStore": {"volumeID": "vol-0123456789abcdef0"}}]}}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("parts", [0, 60_000])
async def test_a_pod_that_is_too_deep_to_be_read_may_name_no_volume_inline(
    parts: int, *, strict: bool
) -> None:
    """Else it would pass with another tenant's volume: the API server ignores a failed call."""
    it = dispatcher(raises, strict=strict)

    response = response_of(await it.answer(PODS, deep(INLINE, parts), LONG_S))

    assert (response["uid"], response["allowed"]) == ("u-1", False)
    assert "nested hundreds of levels deep" in response["status"]["message"]
    assert counted(it, "denied", "TooManyParts") == 1.0


@pytest.mark.parametrize("strict", [False, True])
async def test_what_else_is_too_deep_to_be_read_is_answered_by_policy(*, strict: bool) -> None:
    it = dispatcher(raises, strict=strict)

    response = response_of(await it.answer(PODS, deep({}), LONG_S))

    said = response["status"]["message"] if strict else response["warnings"][0]
    assert (response["uid"], response["allowed"]) == ("u-1", not strict)
    assert "nested hundreds of levels deep" in said


@pytest.mark.parametrize("uid", ["a", "../x", '"', "\\", "\u2028", "é", "\x00", "u" * 128])
async def test_the_uid_comes_back_as_it_was(uid: str) -> None:
    reply = await dispatcher(fine).answer(PODS, msgspec.json.encode(review(uid=uid)), LONG_S)

    assert response_of(reply) == {"uid": uid, "allowed": True}


async def test_a_review_needs_no_more_than_a_uid_and_an_operation() -> None:
    body = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE"}}'

    response = response_of(await dispatcher(raises).answer(PODS, body, LONG_S))

    assert (response["uid"], response["allowed"], len(response["warnings"])) == ("u", True, 1)


async def test_a_claim_is_never_refused_because_of_trouble_of_ours() -> None:
    claims = "/validate/persistentvolumeclaims"
    it = Dispatcher({claims: raises}, strict=True, metrics=WebhookMetrics())
    body = msgspec.json.encode(review("persistentvolumeclaims"))

    response = response_of(await it.answer(claims, body, LONG_S))

    assert response["allowed"] is True
    assert "unchecked" in response["warnings"][0]
