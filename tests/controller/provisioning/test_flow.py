"""The provisioner with services that answer at once: what it goes on with, and what it never does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
import structlog

from provisioner.controller.claims.zone_annotations import AFTER_CONFLICT
from provisioner.controller.provisioning.flow import Provisioner
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.ceilings import Ceilings
from provisioner.ec2.lookups import NameLookUps, VolumeReads, ZoneNames
from provisioner.ec2.volumes import Volumes
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from provisioner.model.claim import SELECTED_NODE, UNKNOWN_ZONE, Claim
from provisioner.model.decision import WHEN_WOKEN
from provisioner.model.errors import Ec2Error, KubeError, Outcome, Reason, StorageError
from provisioner.model.names import PINNED_ZONE, UNCLAIMED, VOLUME_NAME
from provisioner.model.volume import VolumeState
from tests.builders import (
    DRIVER,
    OTHER_INSTANCE,
    UID,
    VOLUME,
    ZONE,
    a_claim,
    a_class,
    a_csi_node,
    a_node,
    a_persistent_volume,
    a_volume,
    an_ec2_error,
)
from tests.controller.services import Ec2, Events, Kube, PromptWatcher
from tests.ec2.virtual_time import Clock, in_virtual_time

CLAIM = a_claim(node="node-1")
OTHER_ZONE = "us-east-1b"


class World:
    """A provisioner, its caches filled, and its services."""

    def __init__(self, claim: Claim, *, cluster_id: str = "") -> None:
        self.kube, self.ec2, self.events = Kube(), Ec2(), Events()
        kube, volumes = cast("KubeClient", self.kube), cast("Volumes", self.ec2)
        metrics = self.metrics = Metrics()
        self.caches = Caches(kube, metrics, DRIVER)
        self.caches.claims._store.apply(claim)
        self.caches.classes._store.apply(a_class(waits=True))
        for name, zone, instance in (
            ("node-1", ZONE, "i-1"),
            ("node-2", OTHER_ZONE, OTHER_INSTANCE),
        ):
            self.caches.nodes._store.apply(a_node(name, zone=zone))
            self.caches.csi_nodes._store.apply(a_csi_node(name, instance=instance))
        self.watcher = PromptWatcher(self.ec2, metrics)
        self.unclaimed = UnclaimedTags(volumes, self.caches, cluster_id=cluster_id)
        services = SimpleNamespace(
            settings=Settings(),
            client=kube,
            caches=self.caches,
            volumes=volumes,
            ceilings=Ceilings(volumes, cluster_id="", extra_tags=()),
            lookups=NameLookUps(volumes),
            volume_reads=VolumeReads(volumes),
            snapshots=self.ec2,
            zone_names=ZoneNames(cast("Ec2Calls", None)),
            watcher=self.watcher,
            unclaimed=self.unclaimed,
            events=self.events,
            metrics=metrics,
        )
        self.provisioner = Provisioner(cast("Services", services), identity="test")


def annotated(claim: Claim, version: str, **annotations: str | None) -> Claim:
    """The claim as the API server has it at a version, with annotations set or removed."""
    both = {**(claim.metadata.annotations or {}), **annotations}
    kept = {key: value for key, value in both.items() if value is not None}
    metadata = msgspec.structs.replace(claim.metadata, resource_version=version, annotations=kept)
    return msgspec.structs.replace(claim, metadata=metadata)


OLD_KEY, NEW_KEY = (f"arn:aws:kms:us-east-1:123456789012:key/{name}" for name in ("old", "new"))
PINNED = annotated(CLAIM, "8", **{PINNED_ZONE: CLAIM.pin(ZONE)})


def another_node(world: World) -> None:
    world.caches.claims._store.apply(annotated(PINNED, "9", **{SELECTED_NODE: "node-2"}))


def no_node(world: World) -> None:
    world.caches.claims._store.apply(annotated(PINNED, "9", **{SELECTED_NODE: None}))


def no_claim(world: World) -> None:
    world.caches.claims._store.remove(PINNED.key, "9")


def no_class(world: World) -> None:
    world.caches.classes._store.remove("fast", "")


def encrypt_with(world: World, key: str) -> None:
    no_class(world)
    world.provisioner._class_changed(a_class(), None)
    parameters = {"encrypted": "true", "kmsKeyId": key}
    world.caches.classes._store.apply(a_class(waits=True, parameters=parameters))


async def nobody(_: str) -> None:
    """No PersistentVolume names the volume."""


def no_such_node(world: World) -> None:
    world.caches.nodes._store.remove("node-1", "")
    world.caches.csi_nodes._store.remove("node-1", "")


@pytest.mark.parametrize(
    "change", [another_node, no_node, no_claim, no_class, no_such_node], ids=lambda c: c.__name__
)
async def test_what_was_sent_is_carried_on_whatever_becomes_of_its_reasons(
    change: Callable[[World], None],
):  # race 2, race 3, race 4
    world = World(CLAIM)
    world.kube.answers = [PINNED, a_persistent_volume()]
    world.ec2.answers = [an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN), a_volume()]
    with pytest.raises(Ec2Error):
        await world.provisioner.reconcile(UID)
    change(world)

    await world.provisioner.reconcile(UID)

    first, second = world.ec2.requests
    assert first == second
    assert first.zone == ZONE
    verb, kind, body = world.kube.sent[-1]
    assert (verb, kind) == ("create", "persistentvolumes")
    assert body["spec"]["claimRef"]["uid"] == UID


async def test_a_saved_volume_is_known_before_any_watch_tells_of_it():  # race 1
    world = World(CLAIM)
    made = a_persistent_volume(f"pvc-{UID}")
    metadata = msgspec.structs.replace(made.metadata, resource_version="9")
    saved = msgspec.structs.replace(made, metadata=metadata)
    world.kube.answers = [PINNED, saved]
    world.ec2.answers = [a_volume()]

    await world.provisioner.reconcile(UID)

    assert world.caches.persistent_volumes.get(saved.name) == saved


async def test_the_zone_is_written_down_before_ec2_hears_of_it():  # race 4
    world = World(CLAIM)
    world.kube.answers = [KubeError(Reason.CONFLICT, "the claim has changed")]

    following = await world.provisioner.reconcile(UID)

    assert following == AFTER_CONFLICT
    assert world.ec2.requests == []


async def test_another_choice_of_the_scheduler_is_never_overwritten():  # race 5
    world = World(CLAIM)
    no_such_node(world)
    world.kube.answers = [KubeError(Reason.CONFLICT, "the claim has changed")]

    following = await world.provisioner.reconcile(UID)

    [(_, _, patch)] = world.kube.sent
    assert patch["metadata"]["resourceVersion"] == CLAIM.metadata.resource_version
    assert patch["metadata"]["annotations"][SELECTED_NODE] is None
    assert following == AFTER_CONFLICT
    assert world.ec2.requests == []


async def test_a_choice_made_meanwhile_in_another_zone_is_tried_when_the_old_zone_is_full():  # race 5
    world = World(CLAIM)
    world.kube.answers = [PINNED, annotated(CLAIM, "10", **{SELECTED_NODE: "node-2"})]
    world.ec2.answers = [an_ec2_error(Reason.ZONE_OUT_OF_CAPACITY)]
    world.ec2.meanwhile = lambda: another_node(world)

    following = await world.provisioner.reconcile(UID)

    assert following == AFTER_CONFLICT
    assert world.kube.sent[-1][2]["metadata"]["annotations"] == {PINNED_ZONE: None}
    world.kube.answers = [PINNED, a_persistent_volume()]
    world.ec2.answers = [a_volume(zone=OTHER_ZONE)]
    world.ec2.meanwhile = lambda: None
    await world.provisioner.reconcile(UID)
    assert [request.zone for request in world.ec2.requests] == [ZONE, OTHER_ZONE]


async def test_a_zone_without_room_is_counted_and_told_in_the_log():
    world = World(CLAIM)
    world.kube.answers = [PINNED, CLAIM]
    world.ec2.answers = [an_ec2_error(Reason.ZONE_OUT_OF_CAPACITY)]

    with structlog.testing.capture_logs() as said:
        following = await world.provisioner.reconcile(UID)

    assert following == WHEN_WOKEN
    [line] = [each for each in said if each["event"] == "asking the scheduler for another node"]
    assert line["reason"] == Reason.ZONE_OUT_OF_CAPACITY.value
    failures = world.metrics.flow_failures.labels("provision", Reason.ZONE_OUT_OF_CAPACITY.value)
    assert failures._value.get() == 1.0


async def test_a_node_that_only_the_cache_lacks_is_not_given_up():  # race 29
    world = World(CLAIM)
    no_such_node(world)
    world.kube.objects = {"node-1": a_node("node-1")}
    world.caches.csi_nodes._store.apply(a_csi_node("node-1"))
    world.kube.answers = [PINNED, a_persistent_volume()]
    world.ec2.answers = [a_volume()]

    await world.provisioner.reconcile(UID)

    assert world.kube.read == ["nodes node-1"]
    assert [request.zone for request in world.ec2.requests] == [ZONE]


async def test_one_lost_reply_is_silent_and_the_second_is_told():
    world = World(CLAIM)
    lost = an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
    world.kube.answers = [PINNED]
    world.ec2.answers = [lost, lost]

    with pytest.raises(Ec2Error):
        await world.provisioner.reconcile(UID)
    after_one = list(world.events.told)
    with pytest.raises(Ec2Error):
        await world.provisioner.reconcile(UID)

    assert after_one == []
    assert len(world.events.told) == 1
    assert "ReplyLost" in world.events.told[0]


async def test_a_claim_whose_volume_cannot_be_looked_at_is_told_why_once():
    world = World(CLAIM)
    world.kube.answers = [PINNED]
    world.ec2.answers = [a_volume(state=VolumeState.CREATING)]
    world.watcher.trouble = an_ec2_error(Reason.PERMISSION_DENIED)

    await world.provisioner.reconcile(UID)
    await world.provisioner.reconcile(UID)

    assert world.events.told == ["PermissionDenied: EC2 says PermissionDenied"]


@pytest.mark.parametrize(("reason", "told"), [(Reason.PERMISSION_DENIED, 1), (Reason.THROTTLED, 0)])
def test_a_claim_that_cannot_be_searched_for_is_told_why_if_somebody_must_act(reason, told):
    async def story(_clock: Clock) -> World:
        world = World(CLAIM)
        world.ec2.failure = an_ec2_error(reason)
        world.kube.answers = [annotated(CLAIM, "8", **{PINNED_ZONE: CLAIM.pin(UNKNOWN_ZONE)})]
        world.provisioner.takeover.begin([CLAIM], from_stranger=True)
        for _ in range(2):
            with pytest.raises(Ec2Error):
                await world.provisioner.reconcile(UID)
        return world

    world = in_virtual_time(story)

    assert len(world.events.told) == told
    assert world.ec2.requests == []


async def test_nothing_is_remembered_of_a_claim_that_went_while_its_volume_was_made():
    world = World(CLAIM)
    world.kube.answers = [PINNED, a_persistent_volume()]
    world.ec2.answers = [an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN), a_volume()]
    with pytest.raises(Ec2Error):
        await world.provisioner.reconcile(UID)
    no_claim(world)

    await world.provisioner.reconcile(UID)

    assert UID not in world.provisioner._events._said


@pytest.mark.parametrize(
    ("mark", "counts"), [({}, False), ({UNCLAIMED: "Delete"}, True)], ids=["stock's", "ours"]
)
async def test_a_volume_that_was_found_counts_as_marked_only_if_it_has_the_mark(mark, counts):
    world = World(CLAIM, cluster_id="prod")
    world.unclaimed._learned.set()
    world.provisioner.takeover.begin([CLAIM], from_stranger=True)
    world.ec2.shown = [a_volume(tags={VOLUME_NAME: CLAIM.persistent_volume_name, **mark})]
    world.kube.answers = [PINNED, a_persistent_volume()]

    await world.provisioner.reconcile(UID)

    assert world.kube.sent[-1][:2] == ("create", "persistentvolumes")
    assert world.unclaimed.is_tagged(VOLUME) is counts
    assert (VOLUME in world.unclaimed._to_clear) is counts


async def test_a_volume_that_we_made_counts_as_marked_though_the_answer_lists_no_tags():
    world = World(CLAIM, cluster_id="prod")
    world.unclaimed._learned.set()
    world.kube.answers = [PINNED, a_persistent_volume()]
    world.ec2.answers = [a_volume()]

    await world.provisioner.reconcile(UID)

    assert world.unclaimed.is_tagged(VOLUME)
    assert VOLUME in world.unclaimed._to_clear


@pytest.mark.parametrize("state", [VolumeState.DELETED, VolumeState.ERROR])
async def test_a_corrected_class_reaches_a_claim_whose_key_was_unusable(
    state: VolumeState, monkeypatch: pytest.MonkeyPatch
):
    world = World(CLAIM)
    encrypt_with(world, OLD_KEY)
    monkeypatch.setattr(world.caches, "nobody_names", nobody)
    world.kube.answers = [PINNED, PINNED, a_persistent_volume()]
    world.ec2.answers = [
        a_volume(state=state, encrypted=True),
        a_volume("vol-2", encrypted=True),
    ]
    with pytest.raises(StorageError, match=r"cannot use a KMS key: check that .*old exists"):
        await world.provisioner.reconcile(UID)
    encrypt_with(world, NEW_KEY)

    await world.provisioner.reconcile(UID)

    first, second = world.ec2.requests
    assert (first.kms_key_id, second.kms_key_id) == (OLD_KEY, NEW_KEY)
    assert first.client_token != second.client_token
    assert world.kube.sent[-1][:2] == ("create", "persistentvolumes")


async def test_the_volume_of_a_claim_that_is_gone_is_deleted_if_its_object_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    world = World(CLAIM, cluster_id="prod")
    world.unclaimed._learned.set()
    refused = KubeError(Reason.FORBIDDEN, "a policy wants a label", status=403)
    world.kube.answers = [PINNED, refused, refused]
    world.ec2.answers = [a_volume()]
    with pytest.raises(KubeError, match="a policy wants a label"):
        await world.provisioner.reconcile(UID)
    assert world.ec2.deleted == []
    no_claim(world)
    looked_for = []

    async def nobody_names(volume_id: str) -> None:
        looked_for.append(volume_id)

    monkeypatch.setattr(world.caches, "nobody_names", nobody_names)

    await world.provisioner.reconcile(UID)

    assert looked_for == world.ec2.deleted == [VOLUME]
    assert UID not in world.provisioner.creations.attempts
    assert not world.unclaimed.is_tagged(VOLUME)


async def test_a_refused_object_whose_volume_cannot_be_deleted_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
):
    async def nobody_names(_: str) -> None:
        pass

    world = World(CLAIM)
    monkeypatch.setattr(world.caches, "nobody_names", nobody_names)
    refused = KubeError(Reason.FORBIDDEN, "a policy wants a label", status=403)
    world.kube.answers = [PINNED, *[refused] * 4]
    world.ec2.answers = [a_volume()]
    with pytest.raises(KubeError):
        await world.provisioner.reconcile(UID)
    no_claim(world)
    before = len(world.events.told)
    world.ec2.failure = an_ec2_error(Reason.PERMISSION_DENIED)

    for _ in range(3):
        with pytest.raises(StorageError):
            await world.provisioner.reconcile(UID)

    (told,) = world.events.told[before:]
    assert "a policy wants a label; volume" in told
    assert "cannot be deleted yet" in told


@pytest.mark.parametrize(
    ("of_ec2", "of_kubernetes", "words"),
    [
        (an_ec2_error(Reason.PERMISSION_DENIED), None, "PermissionDenied: EC2 failed to create"),
        (None, KubeError(Reason.UNREADABLE, "pv-x is odd"), "cannot be deleted yet: pv-x is odd"),
        (an_ec2_error(Reason.NOT_LEADING), None, None),
    ],
    ids=["EC2 denies it", "a PersistentVolume cannot be read", "another replica goes on"],
)
async def test_a_claim_is_told_once_that_its_failed_volume_cannot_be_deleted(
    of_ec2: Ec2Error | None,
    of_kubernetes: KubeError | None,
    words: str | None,
    monkeypatch: pytest.MonkeyPatch,
):
    world = World(CLAIM)
    world.kube.answers = [PINNED]
    world.ec2.answers = [a_volume(state=VolumeState.ERROR)]
    world.ec2.failure = of_ec2

    async def nobody_names(_: str) -> None:
        if of_kubernetes is not None:
            raise of_kubernetes

    monkeypatch.setattr(world.caches, "nobody_names", nobody_names)

    for _ in range(3):
        with pytest.raises(StorageError):
            await world.provisioner.reconcile(UID)

    told = [each for each in world.events.told if VOLUME in each]
    assert len(told) == (words is not None)
    assert all(words in each for each in told if words)
    assert world.provisioner.creations.has_made(UID)  # it is still there, and tried again


@pytest.mark.parametrize(
    "error",
    [
        KubeError(Reason.UNREACHABLE, "etcd is away", outcome=Outcome.UNKNOWN, status=503),
        KubeError(Reason.THROTTLED, "too many", status=429),
    ],
    ids=["an answer that was lost", "throttled"],
)
async def test_the_volume_of_a_claim_that_is_gone_stays_while_its_object_may_be_saved(error):
    world = World(CLAIM)
    world.kube.answers = [PINNED, error, error]
    world.ec2.answers = [a_volume()]
    with pytest.raises(KubeError):
        await world.provisioner.reconcile(UID)
    no_claim(world)

    with pytest.raises(KubeError):
        await world.provisioner.reconcile(UID)

    assert world.ec2.deleted == []
    assert world.provisioner.creations.has_made(UID)
