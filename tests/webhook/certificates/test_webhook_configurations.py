from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from provisioner.model.errors import KubeError, Reason
from tests.webhook import pairs
from tests.webhook.certificate_world import MUTATING, NAME, VALIDATING, Edge, World
from tests.webhook.pairs import NAMES, NOW
from tests.webhook.services import configurations as table
from webhook.certificates import issuing, webhook_configurations
from webhook.certificates.webhook_configurations import Configurations
from webhook.model.review import Json

A, B = (pairs.issue(NAMES, NOW).authority for _ in range(2))


class Story:
    """One of us, and an API server that the manifests were applied to."""

    def __init__(self, *, registered: bool = True) -> None:
        self.world = World(lambda: 0.0, slow_s=0.0)
        if registered:
            self.world.register()
        self.edge = Edge(self.world)
        self.ours = Configurations(self.edge.client, name=NAME)

    async def publish(self, bundle: bytes) -> None:
        await self.ours.publish(await self.ours.read(), bundle)

    async def carries(self, bundle: bytes) -> bool:
        return all(each == bundle for one in await self.ours.read() for each in one.bundles)

    def webhooks(self, plural: str) -> list[Json]:
        found: list[Json] = self.world.objects[plural, NAME]["webhooks"]
        return found


def carrying(webhooks: list[Json], bundle: bytes) -> list[Json]:
    text = base64.b64encode(bundle).decode()
    return [
        webhook | {"clientConfig": webhook["clientConfig"] | {"caBundle": text}}
        for webhook in webhooks
    ]


async def test_every_webhook_gets_the_bundle_and_keeps_the_rest():
    story = Story()
    before = copy.deepcopy({plural: story.webhooks(plural) for plural in (MUTATING, VALIDATING)})

    assert not await story.carries(A)
    await story.publish(A)

    assert await story.carries(A)
    assert story.edge.managers == {"ebs-webhook"}
    for plural, webhooks in before.items():
        assert story.webhooks(plural) == carrying(webhooks, A)


async def test_only_the_bundle_is_sent_so_that_nothing_else_is_owned(
    monkeypatch: pytest.MonkeyPatch,
):
    sent: list[Json] = []
    patch = Edge.patch

    async def noted(self: Edge, resource: Any, name: str, body: Json, **more: Any) -> Any:
        sent.append(body)
        return await patch(self, resource, name, body, **more)

    monkeypatch.setattr(Edge, "patch", noted)
    await Story().publish(A)

    assert [body["kind"] for body in sent] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    for body in sent:
        assert body.keys() == {"apiVersion", "kind", "metadata", "webhooks"}
        assert body["metadata"].keys() == {"name", "resourceVersion"}
        for webhook in body["webhooks"]:
            assert webhook.keys() == {"name", "clientConfig"}
            assert webhook["clientConfig"].keys() == {"caBundle"}


async def test_what_is_carried_already_is_not_written_again():
    story = Story()
    await story.publish(A)
    await story.publish(A)

    assert len(story.world.writes) == 2


async def test_an_old_reading_cannot_undo_a_newer_write():
    story = Story()
    old = await story.ours.read()
    await story.publish(B + A)

    with pytest.raises(KubeError) as caught:
        await story.ours.publish(old, A)

    assert caught.value.reason is Reason.CONFLICT
    assert await story.carries(B + A)


async def test_a_configuration_that_is_not_there_is_not_made():
    story = Story(registered=False)
    story.world.put(MUTATING, NAME, table()["MutatingWebhookConfiguration"])

    await story.publish(A)

    assert await story.carries(A)
    assert [plural for plural, _ in story.world.objects] == [MUTATING]


async def test_who_trusts_whom():
    story = Story()
    await story.publish(B + A)
    webhook, _ = story.webhooks(MUTATING)
    webhook["clientConfig"]["caBundle"] = base64.b64encode(A).decode()
    (a,), (b,) = issuing.authorities(A), issuing.authorities(B)

    found = await story.ours.read()

    assert {each.fingerprint for each in webhook_configurations.authorities_in(found)} == {
        a.fingerprint,
        b.fingerprint,
    }
    asked = [a.fingerprint, b.fingerprint, "unknown"]
    assert webhook_configurations.trusted_by_all(found, asked) == {a.fingerprint}


@pytest.mark.parametrize("odd", [None, {}, {"clientConfig": None}, {"clientConfig": {}}])
async def test_a_webhook_with_parts_missing_is_trusted_by_nothing(odd: Json | None):
    story = Story()
    story.world.objects[VALIDATING, NAME]["webhooks"] = None if odd is None else [odd]

    found = await story.ours.read()

    assert [each.bundles for each in found] == [[b"", b""], [] if odd is None else [b""]]
