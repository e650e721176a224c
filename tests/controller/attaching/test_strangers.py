"""A pod that names another tenant's volume by its id does not get it attached."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from msgspec.structs import replace

from provisioner.kube.wire import Listing
from provisioner.model.meta import ObjectMeta, ObjectReference
from provisioner.model.persistent_volume import InTreeSource, PersistentVolumeSpec
from provisioner.model.pod import InlineEbs, Pod, PodSpec, PodVolume
from tests.builders import VOLUME
from tests.controller.attach_world import AttachWorld, in_attach_world

INLINE: dict[str, Any] = {
    "inline": PersistentVolumeSpec(aws_elastic_block_store=InTreeSource(volume_id=VOLUME)),
    "persistent_volume": None,
}


def a_pod(namespace: str, handle: str = VOLUME) -> Pod:
    volume = PodVolume(name="raw", aws_elastic_block_store=InlineEbs(handle=handle))
    return Pod(metadata=ObjectMeta(name="web", namespace=namespace), spec=PodSpec(volumes=[volume]))


def outcome(holder: str | None, *pods: Pod) -> tuple[list[str], list[str], list[str]]:
    """What EC2 was asked, what the attachment is told, and which pods were looked at.

    ``holder``: the namespace of the claim that the volume backs, None for no claim.
    """
    asked: list[str] = []

    async def story(world: AttachWorld) -> None:
        async def listed(resource: Any, *, field_selector: str, keep: Any) -> Listing[Pod]:
            asked.append(field_selector)
            kept = [pod for pod in pods if keep(pod) is not None]
            return cast("Listing[Pod]", Listing(items=kept, resource_version="1"))

        world.list = listed  # type: ignore[attr-defined]
        world.wish(**INLINE)
        found = world.caches.persistent_volumes.get("pv-1")
        assert found is not None
        claim = ObjectReference(namespace=holder, name="ledger") if holder else None
        spec = replace(found.spec, claim_ref=claim)
        meta = replace(found.metadata, resource_version="9")
        world.caches.persistent_volumes._store.apply(replace(found, metadata=meta, spec=spec))
        await asyncio.sleep(30)
        actions.extend(world.cloud.actions())
        told.extend(message for _, message in world.told)

    actions: list[str] = []
    told: list[str] = []
    in_attach_world(story)
    return actions, told, asked


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([a_pod("shop")], id="another tenant's pod"),
        pytest.param([a_pod("shop"), a_pod("bank")], id="beside the holder's"),
        pytest.param([a_pod("shop", f"aws://us-east-1a/{VOLUME}")], id="the old form"),
        pytest.param([a_pod("shop", f"aws:///{VOLUME}?"), a_pod("bank")], id="an empty query"),
        pytest.param([a_pod("shop", f"aws:///{VOLUME}?x"), a_pod("bank")], id="a query"),
        pytest.param([a_pod("shop", f"aws:///{VOLUME}#"), a_pod("bank")], id="a fragment"),
        pytest.param(
            [a_pod("shop", f"aws:///{VOLUME.replace('-', '%2D')}"), a_pod("bank")], id="escaped"
        ),
        pytest.param(
            [a_pod("shop", f"aws://us-east-1a/{VOLUME.replace('9', '%39')}"), a_pod("bank")],
            id="a digit escaped",
        ),
        pytest.param([], id="no pod"),
        pytest.param([a_pod("bank", "vol-0123")], id="a pod with another volume"),
    ],
)
def test_a_volume_that_backs_a_claim_is_not_attached_for_strangers(pods: list[Pod]):
    actions, told, asked = outcome("bank", *pods)

    assert "AttachVolume" not in actions
    assert f"volume {VOLUME} backs a claim, so it is attached only for pods" in told[0]
    assert "bank" not in told[0]
    assert set(asked) == {"spec.nodeName=node-1"}


def test_pods_of_the_holders_namespace_get_it():
    actions, told, asked = outcome("bank", a_pod("bank"))

    assert (actions, told) == (["AttachVolume"], [])
    assert len(asked) == 1  # not with each look


def test_a_volume_that_backs_no_claim_is_attached_without_a_look_at_pods():
    assert outcome(None, a_pod("shop")) == (["AttachVolume"], [], [])
