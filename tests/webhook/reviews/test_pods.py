"""Reviews of pods: judged by the caches, refused only by what the API server shows."""

import asyncio
from typing import Any

import pytest

from provisioner.model.errors import Ec2Error, KubeError, Reason
from tests.webhook.edges import Ec2, Kube, a_claim, a_node, a_persistent_volume, failing
from tests.webhook.reviews.pods import ZONE, A, B, a_pod, claimed, inline
from tests.webhook.world import BUDGET_S, World
from webhook.model.cluster_view import Evidence, Verdict
from webhook.model.review import Answer, Json
from webhook.reviews import pod_rules as pod
from webhook.reviews import pods

FORBIDDEN = KubeError(Reason.FORBIDDEN, "get is not allowed")


def put_bound(kube: Kube, name: str, zone: str, **how: bool) -> None:
    """A claim bound to the persistent volume ``pv-<name>`` in a zone."""
    kube.put(
        "persistentvolumes",
        a_persistent_volume(f"pv-{name}", zone=zone, claim=f"shop/{name}"),
        **how,
    )
    kube.put("persistentvolumeclaims", a_claim(name, bound=f"pv-{name}"), **how)


def a_world(**more: Any) -> World:
    """Claims ``here`` and ``also-here`` in zone a, ``there`` in b; a node in each."""
    kube = Kube()
    put_bound(kube, "here", A)
    put_bound(kube, "also-here", A)
    put_bound(kube, "there", B)
    kube.put("nodes", a_node("node-a", zone=A), a_node("node-b", zone=B))
    return World(kube, **more)


def test_volumes_of_one_zone_are_let_through_without_a_read():
    world = a_world()

    answer = world.answer("pod", a_pod(*claimed("here", "also-here")))

    assert (answer.allowed, answer.warnings) == (True, ())
    assert world.kube.read == []


def test_a_volume_of_eks_auto_mode_counts_beside_ours():
    world = a_world()
    theirs = a_persistent_volume(
        "pv-auto", zone=B, claim="shop/auto", driver="ebs.csi.eks.amazonaws.com"
    )
    world.kube.put("persistentvolumes", theirs)
    world.kube.put("persistentvolumeclaims", a_claim("auto", bound="pv-auto"))

    answer = world.answer("pod", a_pod(*claimed("here", "auto")))

    assert (answer.allowed, answer.why) == (False, "VolumesApart")


def test_volumes_of_two_zones_are_refused_after_just_these_were_read():
    world = a_world()

    answer = world.answer("pod", a_pod(*claimed("here", "also-here", "there")))

    assert (answer.allowed, answer.code) == (False, 403)
    assert A in answer.message
    assert B in answer.message
    assert sorted(world.kube.read) == [
        "persistentvolumeclaims shop/here",
        "persistentvolumeclaims shop/there",
        "persistentvolumes pv-here",
        "persistentvolumes pv-there",
    ]
    assert world.live_reads() == {"confirmed": 1}


@pytest.mark.parametrize("gone", [True, False])
def test_a_cache_that_is_late_refuses_nothing(gone: bool):  # noqa: FBT001 -- parameter of a test
    world = a_world()

    async def story() -> Any:
        if gone:
            world.kube.remove("persistentvolumes", "pv-there", unseen=True)
        else:
            put_bound(world.kube, "there", A, unseen=True)
        return await world.review("pod", a_pod(*claimed("here", "there")))

    answer = world.tell(story)

    assert (answer.allowed, answer.warnings) == (True, ())
    assert world.live_reads() == {"overturned": 1}


def test_a_refusal_that_rests_on_a_wrong_affinity_says_where_the_volume_is():
    world = a_world(ec2=Ec2({"vol-1": A}))
    put_bound(world.kube, "b", B)
    pod = a_pod(*claimed("b"), node="node-a")

    async def story() -> tuple[Answer, Answer]:
        before = await world.review("pod", pod)
        await world.review("validate", world.kube.objects["persistentvolumes", "pv-b"])
        return before, await world.review("pod", pod)

    unknowing, knowing = world.tell(story)

    assert not unknowing.allowed
    assert not knowing.allowed
    assert knowing.message.startswith(unknowing.message)
    assert f"EC2 has that volume in {A}: its PersistentVolume wrongly allows" in knowing.message
    assert "vol-1" not in knowing.message
    assert "pv-b" not in knowing.message


def test_a_claim_that_was_made_anew_is_followed_to_the_volume_it_has_now():
    world = a_world()

    async def story() -> Any:
        other = a_persistent_volume("pv-other", zone=B, claim="shop/there")
        world.kube.put("persistentvolumes", other)
        rebound = a_claim("there", bound="pv-other")
        world.kube.put("persistentvolumeclaims", rebound, unseen=True)
        world.kube.remove("persistentvolumes", "pv-there", unseen=True)
        await asyncio.sleep(1)
        return await world.review("pod", a_pod(*claimed("here", "there")))

    answer = world.tell(story)

    assert not answer.allowed
    assert "persistentvolumes pv-other" in world.kube.read
    assert world.live_reads() == {"confirmed": 1}


def test_a_second_conflict_counts_when_the_first_was_none():
    world = a_world()

    async def story() -> Any:
        put_bound(world.kube, "there", A, unseen=True)
        return await world.review("pod", a_pod(*claimed("here", "there"), node="node-b"))

    answer = world.tell(story)

    assert (answer.allowed, answer.why) == (False, "NodeElsewhere")
    assert "nodes node-b" in world.kube.read


def test_a_node_is_read_before_a_pod_is_refused_for_it():
    world = a_world()

    async def story() -> Any:
        before = await world.review("pod", a_pod(*claimed("here"), node="node-b"))
        world.kube.put("nodes", a_node("node-b", zone=A), unseen=True)
        return before, await world.review("pod", a_pod(*claimed("here"), node="node-b"))

    before, after = world.tell(story)

    assert (before.allowed, after.allowed) == (False, True)
    assert world.live_reads() == {"confirmed": 1, "overturned": 1}


def test_a_selector_for_another_zone_is_refused():
    answer = a_world().answer("pod", a_pod(*claimed("here"), selector={ZONE: B}))

    assert (answer.allowed, answer.why) == (False, "SelectorElsewhere")


def test_a_node_whose_zone_keys_disagree_is_nowhere_for_sure():
    world = a_world()
    odd = a_node("node-b", zone="rack-1")
    odd["metadata"]["labels"]["topology.ebs.csi.aws.com/zone"] = A
    world.kube.put("nodes", odd)

    assert world.answer("pod", a_pod(*claimed("here"), node="node-b")).allowed


def test_a_selector_for_a_region_of_the_clusters_own_excludes_nothing():
    region = "topology.kubernetes.io/region"

    assert a_world().answer("pod", a_pod(*claimed("here"), selector={region: "home"})).allowed


def test_a_claim_that_is_being_deleted_proves_nothing():
    world = a_world()
    leaving = world.kube.objects["persistentvolumeclaims", "shop/there"]
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    world.kube.put("persistentvolumeclaims", leaving)

    answer = world.answer("pod", a_pod(*claimed("here", "there")))

    assert (answer.allowed, answer.warnings) == (True, ())


def test_a_conflict_that_cannot_be_read_is_let_through_with_a_warning():
    world = a_world()
    world.kube.first = failing(FORBIDDEN)

    answer = world.answer("pod", a_pod(*claimed("here", "there")))

    assert answer.allowed
    assert "Forbidden" in answer.warnings[0]
    assert world.live_reads() == {"failed": 1}


def test_an_api_server_that_is_silent_is_not_waited_for():
    world = a_world()
    world.kube.first = lambda: asyncio.sleep(60)

    answer = world.answer("pod", a_pod(*claimed("here", "there")))

    assert answer.allowed
    assert "no answer in time" in answer.warnings[0]
    assert world.took_s == BUDGET_S


def test_a_strict_webhook_has_an_unproved_conflict_tried_again():
    world = a_world(strict=True)
    world.kube.first = failing(FORBIDDEN)

    answer = world.answer("pod", a_pod(*claimed("here", "there")))

    assert (answer.allowed, answer.code, answer.retry_after_s) == (False, 503, 1)


def test_a_denial_that_rests_on_too_many_objects_is_not_spoken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pods, "MOST_READS", 3)
    world = a_world()

    answer = world.answer("pod", a_pod(*claimed("here", "there")))

    assert answer.allowed
    assert "too many objects" in answer.warnings[0]
    assert world.kube.read == []


def test_a_denial_that_rests_on_more_than_was_read_is_not_spoken(monkeypatch: pytest.MonkeyPatch):
    half, judge = Evidence(claims=frozenset({"shop/here", "shop/there"})), pod.judge

    def judged(*given: Any, **more: Any) -> Verdict:
        return Verdict(judge(*given, **more).answer, half)

    monkeypatch.setattr(pod, "judge", judged)

    assert a_world().answer("pod", a_pod(*claimed("here", "there"))).allowed


def test_claims_that_do_not_exist_yet_are_let_through_without_a_read():
    world = a_world()

    answer = world.answer("pod", a_pod(*claimed("here", "new"), selector={"disk": "ssd"}))

    assert answer.allowed
    assert world.kube.read == []


def test_what_is_only_likely_is_a_warning_without_a_read():
    world = a_world()
    within = {"matchLabelExpressions": [{"key": ZONE, "values": [A]}]}
    world.kube.put(
        "storageclasses",
        {
            "metadata": {"name": "fast"},
            "provisioner": "ebs.csi.aws.com",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [within],
        },
    )
    world.kube.put("persistentvolumeclaims", a_claim("new"))

    answer = world.answer("pod", a_pod(*claimed("new"), selector={ZONE: B}))

    assert (answer.allowed, answer.why) == (True, "ZonesInDoubt")
    assert world.kube.read == []


def test_inline_volumes_are_where_ec2_says():
    world = a_world(ec2=Ec2({"vol-1": A, "vol-2": B}))

    apart = world.answer("pod", a_pod(inline("vol-1"), inline("vol-2")))
    together = world.answer("pod", a_pod(*claimed("here"), inline("vol-1")))

    assert (apart.allowed, apart.why) == (False, "VolumesApart")
    assert together.allowed
    assert world.kube.read == []
    assert world.live_reads() == {}


def test_an_inline_volume_that_ec2_does_not_tell_of_is_no_reason_to_refuse():
    silent = Ec2(first=failing(Ec2Error(Reason.UNREACHABLE, "no", action="DescribeVolumes")))
    world = a_world(ec2=silent)

    answer = world.answer("pod", a_pod(*claimed("here"), inline("vol-1")))

    assert answer.allowed
    assert answer.warnings[0].startswith("the zone of volume vol-1 cannot be determined now")
    assert answer.warnings[0].endswith("EC2 cannot be reached")


def test_pods_that_name_no_end_of_volumes_do_not_keep_persistent_volumes_unchecked():
    world = a_world(ec2=Ec2({"vol-1": A}))

    def naming_many(number: int) -> Json:
        named = [inline(f"vol-{number:04x}{each:04x}") for each in range(64)]
        return a_pod(*named, node="node-a")

    async def story() -> Answer:
        pods = [asyncio.create_task(world.review("pod", naming_many(n))) for n in range(20)]
        await asyncio.sleep(0.1)
        answer = await world.review("mutate", a_persistent_volume(zone=None))
        await asyncio.gather(*pods)
        return answer

    assert world.tell(story).why == "Labelled"


def test_a_silent_ec2_leaves_time_to_prove_a_conflict():
    world = a_world(ec2=Ec2(first=lambda: asyncio.sleep(60)))

    answer = world.answer("pod", a_pod(*claimed("here", "there"), inline("vol-1")))

    assert not answer.allowed
    assert world.took_s < BUDGET_S


def test_a_pod_without_volumes_waits_for_nothing():
    world = a_world(filled=False)

    assert world.answer("pod", a_pod()).allowed
    assert world.took_s == 0


def test_before_the_caches_are_full_nothing_is_judged():
    pod = a_pod(*claimed("here", "there"))
    lenient, strict = a_world(filled=False), a_world(filled=False, strict=True)

    let_through, refused = lenient.answer("pod", pod), strict.answer("pod", pod)

    assert (let_through.allowed, len(let_through.warnings)) == (True, 1)
    assert (refused.allowed, refused.code) == (False, 503)
    assert lenient.took_s == BUDGET_S


@pytest.mark.parametrize("strict", [False, True])
def test_a_claim_is_let_through_unchecked_however_strict(strict: bool):  # noqa: FBT001 -- parameter
    answer = a_world(filled=False, strict=strict).answer("claim", a_claim())

    assert (answer.allowed, len(answer.warnings)) == (True, 1)


def test_a_claim_is_warned_about_its_class_and_never_refused():
    world = a_world()
    world.kube.put(
        "storageclasses", {"metadata": {"name": "fast"}, "provisioner": "ebs.csi.aws.com"}
    )
    for name in ("node-a", "node-b"):
        drivers = {"drivers": [{"name": "ebs.csi.aws.com"}]}
        world.kube.put("csinodes", {"metadata": {"name": name}, "spec": drivers})

    answer = world.answer("claim", a_claim("new"))

    assert answer.allowed
    assert "WaitForFirstConsumer" in answer.warnings[0]
    assert world.kube.read == []


def test_an_inline_volume_of_another_tenant_is_refused_after_its_persistent_volume_was_read():
    world = a_world()
    taken = a_persistent_volume("pv-bank", volume="vol-0ba", zone=A, claim="bank/ledger")
    world.kube.put("persistentvolumes", taken)

    answer = world.answer("pod", a_pod(inline("aws:///vol-0ba")))

    assert (answer.allowed, answer.why) == (False, "VolumeOfAnotherNamespace")
    assert "bank" not in answer.message
    assert world.kube.read == ["persistentvolumes pv-bank"]


def test_an_inline_volume_that_was_given_back_meanwhile_is_let_through():
    world = a_world()
    taken = a_persistent_volume("pv-bank", volume="vol-0ba", zone=A, claim="bank/ledger")
    world.kube.put("persistentvolumes", taken)

    async def story() -> Answer:
        world.kube.remove("persistentvolumes", "pv-bank", unseen=True)
        return await world.review("pod", a_pod(inline("vol-0ba")))

    assert world.tell(story).allowed


def test_a_claim_that_was_forged_to_be_bound_tells_nothing_of_the_volume():
    world = a_world()
    world.kube.put("persistentvolumeclaims", a_claim("forged", bound="pv-there"))

    answer = world.answer("pod", a_pod(*claimed("forged", "here")))

    assert (answer.allowed, answer.warnings) == (True, ())
