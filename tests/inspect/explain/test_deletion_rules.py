"""Why an object that is being deleted is still there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from msgspec import structs

from provisioner.inspect.explain.chain_rules import Chain, at
from provisioner.model.meta import KubeObject
from tests.inspect.explain.test_node_and_volume_rules import snapshot
from tests.inspect.explain.views import NOW, chains, ebs, pod_of, pv_of, view, volume_of

Obj = TypeVar("Obj", bound=KubeObject)
JUST, LONG = NOW - timedelta(seconds=20), NOW - timedelta(days=3)


def going(obj: Obj, since: datetime, *finalizers: str) -> Obj:
    """The object while it is being deleted."""
    meta = structs.replace(
        obj.metadata, deletion_timestamp=at(since), finalizers=list(finalizers) or None
    )
    return structs.replace(obj, metadata=meta)


def of_snapshot(since: datetime, *finalizers: str) -> Chain:
    about = snapshot().snapshot
    assert about is not None
    assert about.snapshot is not None
    (chain,) = chains(snapshot(snapshot=going(about.snapshot, since, *finalizers)))
    return chain


def of_pod(since: datetime, *finalizers: str) -> Chain:
    (chain,) = chains(view("pod", pod=going(pod_of(), since, *finalizers)))
    return chain


def of_volume(since: datetime, *finalizers: str, phase: str = "Released", **changes: Any) -> Chain:
    found = going(pv_of(phase=phase), since, *finalizers)
    usual = {"persistent_volume": found, "attachments": (), "ebs": ebs(on="")}
    (chain,) = chains(view("pv", volume=volume_of(**usual | changes)))
    return chain


OURS = "external-provisioner.volume.kubernetes.io/finalizer"
OF_SNAPSHOTS = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
WAYS = [
    pytest.param(of_snapshot, OF_SNAPSHOTS, id="snapshot"),
    pytest.param(of_pod, "batch.kubernetes.io/job-tracking", id="pod"),
    pytest.param(of_volume, OURS, id="pv"),
]


@pytest.mark.parametrize(("explained", "known"), WAYS)
def test_a_deletion_waits_only_as_long_as_it_may_take(explained: Any, known: str):
    assert explained(JUST, known).waits
    late = explained(LONG, known)
    assert (late.waits, str(late.cause)) == (False, "FinalizerStuck")
    assert "2026-11-20T20:00:00Z" in late.links[0].proof.seen
    assert late.links[0].remedy
    assert late.links[0].command


@pytest.mark.parametrize(("explained", "known"), WAYS)
def test_a_finalizer_of_somebody_else_is_named(explained: Any, known: str):
    held = explained(JUST, known, "example.com/hold")
    assert (held.waits, str(held.cause)) == (False, "FinalizerStuck")
    assert "example.com/hold" in held.links[0].sentence
    assert known not in held.links[0].sentence


@pytest.mark.parametrize("changes", [{}, {"attachments": volume_of().attachments, "ebs": ebs()}])
def test_a_bound_volume_that_is_deleted_stays_with_its_claim(changes: dict[str, Any]):
    chain = of_volume(LONG, "kubernetes.io/pv-protection", OURS, phase="Bound", **changes)
    assert str(chain.cause) == "VolumeStillBound"
    assert "claim shop/data is still bound" in chain.links[0].sentence
    assert "pod" not in chain.links[0].remedy
    assert "Retain" in chain.links[0].command
