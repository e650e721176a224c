"""One look at a cluster and at EC2: the volumes of a cluster id, and what speaks for them."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from provisioner.ec2.batches import FILTER_VALUES, PAGE, one_of, pages
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.volumes import Volumes
from provisioner.inspect.command_line import Readers
from provisioner.inspect.orphans.orphan_plan_rules import (
    CLUSTER_TAGS,
    Surroundings,
    ids_in,
    sign_of_another,
)
from provisioner.inspect.reading import controller_rules
from provisioner.inspect.reading.aws import Aws
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.controllers import cluster_id_of
from provisioner.inspect.reading.kinds import NAMESPACES
from provisioner.inspect.reading.setup_kinds import DEPLOYMENTS
from provisioner.kube.resources import LABELLED_CLAIMS, NODES, PERSISTENT_VOLUMES
from provisioner.model import tags
from provisioner.model.errors import Reason, StorageError
from provisioner.model.names import CLUSTER_PREFIX
from provisioner.model.volume import Instance, Volume

MIN_AGE_S = 3_600.0
_UID_OF = "kube-system"  # the namespace that lives as long as its cluster
# Of a cluster that dies: those that are on their way out count as dead.
_RUNNING = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True, slots=True)
class Seen:
    """The volumes that carry a cluster's tag, and what they are compared with."""

    volumes: Sequence[Volume]
    around: Surroundings


@dataclass(frozen=True, slots=True)
class Own:
    """What the cluster that is asked has made.

    Attributes:
        seen: a look at each of its ids.
        others: ids that only tags tell and that seem to be other, living clusters', with the proof.
    """

    seen: Sequence[Seen]
    others: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterSide:
    """What the API server says, read anew for each look; as in ``Surroundings``."""

    named: Mapping[str, str]
    claim_uids: frozenset[str]
    own_ids: Mapping[str, str]
    unread: Sequence[str]


def ec2_of(readers: Readers) -> Ec2Calls:
    """EC2, which a look cannot do without.

    Raises:
        StorageError: it cannot be asked; the gap's words.
    """
    if readers.cloud.calls is None:
        gap = readers.cloud.gaps[0]
        raise StorageError(gap.reason, gap.message)
    return readers.cloud.calls


async def account_of(readers: Readers) -> str:
    """The account of the credentials; needs no right. Source: STS API reference, GetCallerIdentity.

    Raises:
        StorageError: EC2 cannot be asked, or STS does not answer.
    """
    region = ec2_of(readers).region
    with closing(Aws.of_caller(region)) as aws:
        try:
            answer = await aws.call("sts", "GetCallerIdentity")
        except StorageError as error:
            raise StorageError(error.reason, f"sts GetCallerIdentity: {error.message}") from error
    return str(answer["Account"])


async def cluster_uid_of(readers: Readers) -> str:
    """What tells the cluster that is asked from others: the UID of its namespace kube-system.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return (await readers.cluster.client.get(NAMESPACES, _UID_OF)).uid
    except StorageError as error:
        what = "a plan is for one cluster, and it cannot be told which one is asked"
        raise StorageError(error.reason, f"{what}: {error.message}") from error


async def cluster_side(readers: Readers) -> ClusterSide:
    """The API server's half, complete or not at all.

    Raises:
        StorageError: a list could not be read: without it anything may look like an orphan.
    """
    cluster = Cluster(readers.cluster.client)  # nothing of an earlier look
    found, claims, deployments = await asyncio.gather(
        cluster.every(PERSISTENT_VOLUMES),
        cluster.every(LABELLED_CLAIMS),
        cluster.every(DEPLOYMENTS),
    )
    if cluster.gaps:
        gap = cluster.gaps[0]
        raise StorageError(gap.reason, f"no orphan can be told: {gap.message}")
    ids = {
        each.key: await cluster_id_of(cluster, each)
        for each in controller_rules.controllers(deployments)
    }
    return ClusterSide(
        named={volume: each.name for each in found if (volume := each.named_volume)},
        claim_uids=frozenset(claim.uid for claim in claims),
        own_ids={found: f"Deployment {key} runs with it" for key, found in ids.items() if found},
        unread=[key for key, found in ids.items() if found is None],
    )


async def look_at_own(readers: Readers, side: ClusterSide, *, min_age_s: float = MIN_AGE_S) -> Own:
    """A look at each id under which the cluster that is asked creates its volumes; or none.

    As its controllers are started, else as the volumes of some PersistentVolumes are tagged.

    Raises:
        StorageError: EC2 could not be asked, or a controller's id or the Nodes cannot be read.
    """
    ids = sorted(side.own_ids or await _ids_by_tags(readers, side))
    found = [await look(readers, side, each, min_age_s=min_age_s) for each in ids]
    if side.own_ids:
        return Own(found)
    nodes = await _nodes(readers) if found else frozenset()
    signs = [sign_of_another(each.volumes, each.around, nodes) for each in found]
    seen = [each for each, sign in zip(found, signs, strict=True) if not sign]
    if not seen and side.unread:
        which = ", ".join(side.unread)
        raise StorageError(
            Reason.UNREADABLE,
            f"the cluster id that Deployment {which} runs with cannot be read (is its ConfigMap "
            "there, and may you get it?)",
        )
    return Own(seen, {each: sign for each, sign in zip(ids, signs, strict=True) if sign})


async def _ids_by_tags(readers: Readers, side: ClusterSide) -> set[str]:
    some = sorted(side.named)[:FILTER_VALUES]
    found = await Volumes(ec2_of(readers)).look_for(some)
    return {
        cluster_id
        for each in found.values()
        if isinstance(each, Volume)
        for cluster_id in ids_in(each.tags)
    }


async def _nodes(readers: Readers) -> frozenset[str]:
    """The instances of all Nodes, as they are now.

    Raises:
        StorageError: they cannot be listed.
    """
    cluster = Cluster(readers.cluster.client)
    nodes = await cluster.every(NODES)
    if cluster.gaps:
        gap = cluster.gaps[0]
        raise StorageError(gap.reason, f"no orphan can be told: {gap.message}")
    return frozenset(each.instance_id for each in nodes)


async def look(
    readers: Readers, side: ClusterSide, cluster_id: str, *, min_age_s: float = MIN_AGE_S
) -> Seen:
    """All volumes that are tagged as a cluster's, beside what the API server has said.

    EC2 is read after Kubernetes: what is new in EC2 is too young to be an orphan.

    Raises:
        StorageError: EC2 could not be asked.
    """
    calls = ec2_of(readers)
    volumes, instances = await asyncio.gather(
        _tagged(calls, cluster_id), _running(calls, cluster_id)
    )
    around = Surroundings(
        cluster_id=cluster_id,
        named=side.named,
        claim_uids=side.claim_uids,
        own_ids=side.own_ids,
        unread=side.unread,
        instances=instances,
        now=datetime.now(UTC),
        min_age=timedelta(seconds=min_age_s),
    )
    return Seen(volumes, around)


async def _tagged(calls: Ec2Calls, cluster_id: str) -> list[Volume]:
    """The volumes that any tag gives to a cluster: each may show that it is alive."""
    wanted: list[dict[str, str | None]] = [{tags.cluster_key(cluster_id): None}]
    wanted += [{key: cluster_id} for key in CLUSTER_TAGS]
    found = await asyncio.gather(*(Volumes(calls).find(tags=each) for each in wanted))
    return list({each.volume_id: each for some in found for each in some}.values())


async def _running(calls: Ec2Calls, cluster_id: str) -> frozenset[str]:
    """The instances that are tagged as a cluster's, with any value, and are not terminated."""
    filters = [
        one_of("tag-key", [f"{CLUSTER_PREFIX}{cluster_id}"]),
        one_of("instance-state-name", _RUNNING),
    ]
    found: list[Instance] = []
    params = {"Filters": filters, "MaxResults": PAGE}
    async for page in pages(lambda page: calls.call("DescribeInstances", page), params):
        found.extend(page["Instances"])
    return frozenset(each.instance_id for each in found)
