"""What the front answers over real TLS connections."""

import msgspec
import pytest

from tests.webhook.front_world import PODS, VOLUMES, review, world


async def test_answers_a_review_with_its_uid():
    async with world() as it:
        status, body = await it.post(review(uid="0b5c"))

    assert status == 200
    assert msgspec.json.decode(body) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "0b5c", "allowed": True},
    }
