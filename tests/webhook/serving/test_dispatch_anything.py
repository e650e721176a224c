"""Whatever the bytes or the JSON of a body: a review as the answer, or one sentence."""

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.webhook.front_world import PODS, VOLUMES, fine
from webhook.metrics import WebhookMetrics
from webhook.model.review import Answer, Handler, Json, Request, allow
from webhook.serving.dispatch import Dispatcher, Reply

LONG_S = 5.0
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def dispatcher(handler: Handler) -> Dispatcher:
    handlers = {PODS: handler, VOLUMES: handler}
    return Dispatcher(handlers, strict=False, metrics=WebhookMetrics())


def whole(reply: Reply) -> None:
    """A reply is a review that the API server takes, or one sentence."""
    if reply.status == 200:
        answer = msgspec.json.decode(reply.body)
        assert (answer["kind"], answer["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
        assert isinstance(answer["response"]["allowed"], bool)
    else:
        assert reply.status == 400
        assert reply.body.decode().strip()


async def looks_closely(request: Request, _: float) -> Answer:
    """Trips over whatever a review may lack."""
    found = request.object or {}
    label = found["metadata"]["labels"]["zone"]
    return allow("Labelled", patch=[{"op": "add", "path": "/metadata/labels/zone", "value": label}])


@given(body=st.binary())
def test_any_bytes_get_an_answer(body: bytes) -> None:
    whole(asyncio.run(dispatcher(fine).answer(PODS, body, LONG_S)))


@given(
    body=st.fixed_dictionaries(
        {
            "apiVersion": st.just("admission.k8s.io/v1") | JSON,
            "kind": st.just("AdmissionReview") | JSON,
        },
        optional={
            "request": JSON
            | st.fixed_dictionaries(
                {
                    "uid": st.text(min_size=1),
                    "operation": st.sampled_from(["CREATE", "DELETE"]) | st.text(),
                },
                optional={
                    "resource": st.fixed_dictionaries(
                        {"resource": st.just("persistentvolumes")}, optional={"group": st.text()}
                    ),
                    "object": st.dictionaries(st.text(), JSON, max_size=3)
                    | st.builds(lambda labels: {"metadata": {"labels": labels}}, JSON),
                    "userInfo": JSON,
                },
            )
        },
    )
)
def test_any_json_gets_an_answer(body: Json) -> None:
    raw = msgspec.json.encode(body)
    whole(asyncio.run(dispatcher(looks_closely).answer(VOLUMES, raw, LONG_S)))
