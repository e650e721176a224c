"""Read all that the checks look at: Kubernetes first, then AWS, all questions at once."""

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from provisioner.inspect.command_line import Readers, Target
from provisioner.inspect.doctor import probes, volume_rules, webhook_rules
from provisioner.inspect.doctor.class_rules import SNAPSHOT_CRDS, SNAPSHOT_LEASE
from provisioner.inspect.doctor.evidence_rules import (
    LEASES_ELSEWHERE,
    Clock,
    ClusterEvidence,
    Evidence,
)
from provisioner.inspect.reading.aws import ahead_of
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.controller_rules import (
    ACCOUNTS,
    at_work,
    is_ours,
    ours,
    stock_controllers,
)
from provisioner.inspect.reading.controllers import cluster_id_of, region_of
from provisioner.inspect.reading.gap_rules import KUBERNETES, Gap
from provisioner.inspect.reading.kinds import WATCHED_SNAPSHOTS
from provisioner.inspect.reading.leases import USUAL_NAMESPACE, lease_namespace
from provisioner.inspect.reading.setup_kind_rules import (
    DataObject,
    EndpointSlice,
    SeenLease,
    Workload,
)
from provisioner.inspect.reading.setup_kinds import (
    CSI_DRIVER_SETUPS,
    CUSTOM_RESOURCES,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    MUTATING_WEBHOOKS,
    NAMED_PODS,
    SECRETS,
    SEEN_LEASES,
    SERVICE_ACCOUNTS,
    SYSTEM_NODES,
    VALIDATING_WEBHOOKS,
)
from provisioner.kube.resources import (
    ATTACHMENTS,
    ATTRIBUTES_CLASSES,
    CLAIMS,
    CSI_NODES,
    PLACED_VOLUMES,
    SNAPSHOT_CLASSES,
    STORAGE_CLASSES,
    Resource,
    T,
)
from provisioner.model.errors import KubeError
from provisioner.model.leadership import lease_names
from provisioner.model.meta import KubeObject

_CONTROLLER = "controller"
_METRICS_PORT = 8080  # manifests/webhook/deployment.yaml
_KINDS: tuple[Resource[Any], ...] = (
    *(SYSTEM_NODES, CSI_NODES, STORAGE_CLASSES, ATTRIBUTES_CLASSES, PLACED_VOLUMES),
    *(CLAIMS, ATTACHMENTS, WATCHED_SNAPSHOTS, SNAPSHOT_CLASSES, DEPLOYMENTS, DAEMON_SETS),
)


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of the command.

    Attributes:
        target: the cluster and the account.
        identity: under which rights are tried.
        lease_namespace: of the controller's leases; "" to look for them.
    """

    target: Target
    identity: probes.Identity
    lease_namespace: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The evidence, and how many calls AWS got, by action."""

    seen: Evidence
    calls: dict[str, int] = field(default_factory=dict)


async def gather(readers: Readers, question: Question) -> Answer:
    """All evidence; what cannot be read is in its gaps."""
    cluster = readers.cluster
    told, version = await asyncio.gather(_cluster(cluster, question), _version(cluster))
    found = replace(told, server_version=version[0])
    clocks = [version[1]] if version[1] is not None else []
    cloud, cloud_gaps, calls, aws_clocks = await probes.ask(readers, found, question.identity)
    gaps = {_missed(each, found): each for each in cluster.gaps} | cloud_gaps
    seen = Evidence(
        driver=question.target.driver,
        now=datetime.now(UTC),
        cluster=found,
        cloud=cloud,
        gaps={what: each.message for what, each in gaps.items()},
        unanswered={what for what, each in gaps.items() if not each.is_right},
        clocks=[*clocks, *aws_clocks],
    )
    return Answer(await looked_again(cluster, seen), calls)


async def looked_again(cluster: Cluster, seen: Evidence) -> Evidence:
    """Objects once more, where EC2 shows what those of the first look do not explain.

    EC2 was asked later: a volume may have been attached for a new VolumeAttachment since, or
    deleted, and its PersistentVolume with it.
    """
    if volume_rules.strays(seen):
        later, seen = await _listed_again(cluster, seen, ATTACHMENTS)
        seen = replace(seen, cluster=replace(seen.cluster, later_attachments=later))
    if seen.is_confirmed_cloud and (missing := volume_rules.missing(seen)):
        now, seen = await _listed_again(cluster, seen, PLACED_VOLUMES)
        names = {each.name for each in missing.values()}
        volumes = [each for each in seen.cluster.volumes if each.name not in names]
        volumes += [each for each in now if each.name in names]
        seen = replace(seen, cluster=replace(seen.cluster, volumes=volumes))
    return seen


async def _listed_again(
    cluster: Cluster, seen: Evidence, resource: Resource[T]
) -> tuple[Sequence[T], Evidence]:
    """All objects of a kind as they are now; none, and why, if they cannot be read."""
    try:
        return (await cluster.client.list(resource)).items, seen
    except KubeError as error:
        kind = resource.plural
        gap = Gap.of(KUBERNETES, f"list {kind}", error)
        unanswered = {*seen.unanswered, *(() if gap.is_right else (kind,))}
        return (), replace(seen, gaps={**seen.gaps, kind: gap.message}, unanswered=unanswered)


async def _cluster(cluster: Cluster, question: Question) -> ClusterEvidence:
    # All at once; below, each has its answer already (``Cluster`` asks nothing twice).
    await asyncio.gather(*(cluster.every(each) for each in _KINDS))
    driver = question.target.driver
    deployments, webhooks = await cluster.every(DEPLOYMENTS), await _webhooks(cluster)
    namespaces = sorted({namespace for namespace, _ in webhook_rules.services_of(webhooks)})
    mine = ours(deployments, _CONTROLLER)
    leases = await _leases(cluster, question)
    holders = [each.spec.holder_identity or "" for each in leases.values()]
    cluster_id = await cluster_id_of(cluster, mine[0]) if mine else None
    account = await _account(cluster, at_work(deployments, holders), question.identity.account)
    controllers = [*mine, *stock_controllers(deployments)]
    return ClusterEvidence(
        nodes=await cluster.every(SYSTEM_NODES),
        csi_nodes=await cluster.every(CSI_NODES),
        csi_driver=await cluster.one(CSI_DRIVER_SETUPS, driver),
        classes=await cluster.every(STORAGE_CLASSES),
        attributes_classes=await cluster.every(ATTRIBUTES_CLASSES),
        volumes=await cluster.every(PLACED_VOLUMES),
        claims=await cluster.every(CLAIMS),
        attachments=await cluster.every(ATTACHMENTS),
        snapshots=await cluster.every(WATCHED_SNAPSHOTS),
        snapshot_classes=await cluster.every(SNAPSHOT_CLASSES),
        leases=leases,
        snapshot_lease=await cluster.one(SEEN_LEASES, SNAPSHOT_LEASE, USUAL_NAMESPACE),
        webhooks=webhooks,
        slices=await _slices(cluster, namespaces),
        secret=await _secret(cluster, namespaces),
        unchecked=await _unchecked(cluster, namespaces),
        custom_resources=await _by_name(
            cluster.one(CUSTOM_RESOURCES, name) for name in SNAPSHOT_CRDS
        ),
        deployments=deployments,
        daemon_sets=await cluster.every(DAEMON_SETS),
        accounts=await _accounts(cluster, controllers),
        account=account,
        cluster_id=cluster_id,
        controller_regions=await _regions(cluster, controllers),
    )


async def _leases(cluster: Cluster, question: Question) -> dict[str, SeenLease]:
    driver, now = question.target.driver, await cluster.now()
    namespace = await lease_namespace(cluster, driver, question.lease_namespace, now)
    return await _by_name(cluster.one(SEEN_LEASES, each, namespace) for each in lease_names(driver))


async def _by_name(asked: Iterable[Awaitable[Any]]) -> dict[str, Any]:
    return {each.name: each for each in await asyncio.gather(*asked) if each is not None}


async def _webhooks(cluster: Cluster) -> list[Any]:
    found = await asyncio.gather(
        cluster.every(MUTATING_WEBHOOKS), cluster.every(VALIDATING_WEBHOOKS)
    )
    return [each for some in found for each in some if webhook_rules.is_ours(each)]


async def _slices(cluster: Cluster, namespaces: list[str]) -> list[EndpointSlice]:
    found = await asyncio.gather(
        *(cluster.every(ENDPOINT_SLICES, namespace=each) for each in namespaces)
    )
    return [each for some in found for each in some]


async def _secret(cluster: Cluster, namespaces: list[str]) -> DataObject | None:
    """Only its certificate is looked at, but the right to read it is one to its key as well."""
    found = [await cluster.one(SECRETS, webhook_rules.SECRET, each) for each in namespaces]
    return next((each for each in found if each is not None), None)


async def _unchecked(cluster: Cluster, namespaces: list[str]) -> dict[str, float] | None:
    """What the webhook's pods count; None unless all of them can be asked."""
    found = [await cluster.every(NAMED_PODS, namespace=each) for each in namespaces]
    pods = [each for some in found for each in some if is_ours(each, "webhook")]
    paths = [
        f"/api/v1/namespaces/{each.metadata.namespace}/pods/{each.name}:{_METRICS_PORT}/proxy/metrics"
        for each in pods
    ]
    total: dict[str, float] = {}
    try:
        for text in await asyncio.gather(*map(cluster.client.text, paths)):
            for reason, count in webhook_rules.unchecked_in(text).items():
                total[reason] = total.get(reason, 0.0) + count
    except (KubeError, ValueError):
        return None
    return total if paths else None


async def _account(cluster: Cluster, controller: Workload | None, given: str) -> KubeObject | None:
    """The ServiceAccount that is given, or that of a controller, or one of the usual names."""
    names: tuple[tuple[str, str], ...] = ACCOUNTS
    if given:
        namespace, _, name = given.partition("/")
        names = ((namespace, name),)
    elif controller is not None:
        names = ((controller.metadata.namespace, controller.account_name),)
    found = [await cluster.one(SERVICE_ACCOUNTS, name, namespace) for namespace, name in names]
    return next((each for each in found if each is not None), None)


async def _regions(cluster: Cluster, controllers: Iterable[Workload]) -> dict[str, str]:
    """The Regions that controllers are set to, by the keys of their Deployments."""
    found = {each.key: await region_of(cluster, each) for each in controllers}
    return {key: region for key, region in found.items() if region}


async def _accounts(cluster: Cluster, controllers: list[Workload]) -> list[KubeObject]:
    """Their ServiceAccounts, as far as they exist."""
    keys = sorted({(each.metadata.namespace, each.account_name) for each in controllers})
    found = await asyncio.gather(
        *(cluster.one(SERVICE_ACCOUNTS, name, namespace) for namespace, name in keys)
    )
    return [each for each in found if each is not None]


async def _version(cluster: Cluster) -> tuple[str, Clock | None]:
    sent_s = time.time()
    try:
        version, date = await cluster.client.version()
    except KubeError as error:
        cluster.gaps.append(Gap.of(KUBERNETES, "get version", error))
        return "", None
    ahead_s = ahead_of(date, (sent_s + time.time()) / 2)
    return version, None if ahead_s is None else Clock("API server", ahead_s)


def _missed(gap: Gap, found: ClusterEvidence) -> str:
    """The key of a gap in the evidence."""
    if found.leases and gap.what == f"list {SEEN_LEASES.plural}":
        return LEASES_ELSEWHERE
    return gap.what.rpartition(" ")[2]
