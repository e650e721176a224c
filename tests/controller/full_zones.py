"""A provisioner in three zones, some of them full, with an API server that remembers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from provisioner.model.claim import SELECTED_NODE, Claim
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import UnlabelledMeta
from provisioner.model.names import PINNED_ZONE
from provisioner.model.pod import Pod
from provisioner.model.volume import CreateRequest, Volume
from tests.builders import (
    UID,
    VOLUME,
    a_claim,
    a_class,
    a_csi_node,
    a_node,
    a_persistent_volume,
    a_volume,
    an_ec2_error,
)
from tests.controller.provisioning.test_flow import World, annotated

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
CHOSEN = a_claim(node="node-a")
OTHER_UID = "0c5a1b2e-7f00-4a7e-9d61-3b1f00000002"


class FullZones(World):
    """``full``: zones without room, and why; ``nodes``: node-a, node-b, node-c are in A, B, C.

    ``pins``: the zone that was written to the claim when EC2 was asked, for each request.
    """

    def __init__(self, *claims: Claim, waits: bool = True) -> None:
        super().__init__(claims[0])
        for claim in claims[1:]:
            self.caches.claims._store.apply(claim)
        self.caches.classes._store._objects["fast"] = a_class(waits=waits)
        for store in (self.caches.nodes._store, self.caches.csi_nodes._store):
            store._objects.clear()
        for zone in (A, B, C):
            self.caches.nodes._store.apply(a_node(f"node-{zone[-1]}", zone=zone))
            self.caches.csi_nodes._store.apply(a_csi_node(f"node-{zone[-1]}"))
        self.full: dict[str, Reason] = {}
        self.pins: list[str] = []
        self.patches: Counter[str] = Counter()
        self.kube.patch = self._patch  # type: ignore[method-assign]
        self.kube.create = self._create  # type: ignore[method-assign]
        self.ec2.create = self._make  # type: ignore[method-assign]

    @property
    def zones_asked(self) -> list[str]:
        return [request.zone for request in self.ec2.requests]

    def claim(self, uid: str = UID) -> Claim:
        found = self.caches.claim(uid)
        assert found is not None
        return found

    def choose(self, node: str, uid: str = UID) -> None:
        """Do what the scheduler does."""
        self._annotate(self.claim(uid), {SELECTED_NODE: node})

    def _annotate(self, claim: Claim, annotations: Mapping[str, str | None]) -> Claim:
        version = str(int(claim.metadata.resource_version) + 1)
        changed = annotated(claim, version, **annotations)
        self.caches.claims._store.apply(changed)
        return changed

    async def _patch(self, resource: Any, name: str, body: Any, **_: Any) -> Any:
        claim = self.caches.claims.get(f"shop/{name}")
        if claim is None:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")
        if body["metadata"]["resourceVersion"] != claim.metadata.resource_version:
            raise KubeError(Reason.CONFLICT, "it has changed")
        self.patches[name] += 1
        return self._annotate(claim, body["metadata"]["annotations"])

    async def _create(self, *_: Any, **__: Any) -> Any:
        self.kube.sent.append(("create", "persistentvolumes", None))
        return a_persistent_volume()

    async def _make(self, request: CreateRequest, *, gate: Any) -> Volume:
        gate()
        self.ec2.requests.append(request)
        tags = dict(request.tags)
        named = next(
            c for c in self.caches.claims.values() if c.persistent_volume_name in tags.values()
        )
        self.pins.append(named.annotations.get(PINNED_ZONE, "").partition("/")[0])
        if request.zone in self.full:
            raise an_ec2_error(self.full[request.zone])
        self.ec2.made[VOLUME] = made = a_volume(VOLUME, zone=request.zone)
        return made


def world_of(
    *claims: Claim, waits: bool = True, pod: Pod | None = None, **full: Reason
) -> FullZones:
    """A world of these claims, or of one whose node is in A; ``a=reason``: that zone is full."""
    world = FullZones(*(claims or (CHOSEN,)), waits=waits)
    world.full = {f"us-east-1{letter}": reason for letter, reason in full.items()}
    if pod is not None:
        world.caches.pods._store.apply(pod)
    return world


def other_claim(name: str = "logs", **given: Any) -> Claim:
    """Another claim of the same pod."""
    return a_claim(name, uid=OTHER_UID, **given)


def with_volume(claim: Claim, name: str) -> Claim:
    """The claim once it is bound."""
    spec = msgspec.structs.replace(claim.spec, volume_name=name)
    version = str(int(claim.metadata.resource_version) + 1)
    metadata: UnlabelledMeta = msgspec.structs.replace(claim.metadata, resource_version=version)
    return msgspec.structs.replace(claim, spec=spec, metadata=metadata)
