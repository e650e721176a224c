"""What is asked of AWS: what exists, whose rights there are, and how much is left."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from provisioner.ec2.volumes import Volumes
from provisioner.inspect.command_line import Readers
from provisioner.inspect.doctor import key_rules, right_rules
from provisioner.inspect.doctor.evidence_rules import (
    ROLE_ANNOTATION,
    Clock,
    CloudEvidence,
    ClusterEvidence,
    DefaultKey,
    KeyTry,
    NotAssumed,
    SeenInstance,
    Try,
)
from provisioner.inspect.doctor.right_rules import Samples
from provisioner.inspect.doctor.tries import default_key_of, named_keys, tried
from provisioner.inspect.doctor.volume_pages import VolumePages
from provisioner.inspect.reading import quotas
from provisioner.inspect.reading.aws import Aws
from provisioner.inspect.reading.controller_rules import ACCOUNTS
from provisioner.inspect.reading.gap_rules import AWS, Gap
from provisioner.inspect.reading.quota_rules import QuotaUse, uses
from provisioner.inspect.reading.setup_kinds import SERVICE_ACCOUNTS, TOKENS
from provisioner.model import tags
from provisioner.model.errors import Ec2Error, KubeError, Reason, StorageError
from provisioner.model.instance_type_limit import known_limit
from provisioner.model.names import MADE_BY_DRIVER
from provisioner.model.node_affinity import names_zone
from provisioner.model.volume import Volume, VolumeState
from provisioner.model.zone import zone_of

A = TypeVar("A")
_IDS_A_CALL = 200
_PATIENCE_S = 15.0
_AUDIENCE = "sts.amazonaws.com"
_TOKEN_S = 600


@dataclass(frozen=True, slots=True)
class Identity:
    """Under whose identity rights are tried, and for which driver.

    Attributes:
        driver: its name.
        role: the controller's, to be assumed; "" for none.
        as_controller: whether the controller's role is assumed by its ServiceAccount's token.
        account: "NAMESPACE/NAME" of the ServiceAccount to take for the controller's; "" to find it.
    """

    driver: str
    role: str = ""
    as_controller: bool = False
    account: str = ""


@dataclass(frozen=True, slots=True)
class Rights:
    """What was tried, and as whom: fields of ``CloudEvidence``."""

    tries: Sequence[Try] = ()
    keys: Sequence[KeyTry] = ()
    default_key: DefaultKey | None = None
    by_tags: Sequence[Try] = ()
    tried_as: str = ""
    is_controllers: bool = False
    refused: str = ""
    not_assumed: NotAssumed | None = None
    not_as_controller: str = ""


Found = tuple[CloudEvidence, dict[str, Gap], dict[str, int], list[Clock]]
_QUESTIONS = (
    *("EC2", "GetCallerIdentity", "DescribeInstances", "DescribeVolumes", "DescribeSnapshots"),
    *("ListServiceQuotas", "DryRun"),
)


async def ask(readers: Readers, cluster: ClusterEvidence, identity: Identity) -> Found:
    """All that AWS is asked; gaps by action, calls by action, and clocks."""
    region = readers.cloud.region
    if not region:
        gaps = readers.cloud.gaps
        why = "; ".join(each.message for each in gaps) or "no AWS Region is known"
        return _nothing("", why, gaps[0].reason if gaps else Reason.WRONG_CLOUD)
    try:
        caller = await asyncio.to_thread(Aws.of_caller, region)
    except StorageError as error:
        return _nothing(region, error.message, error.reason)
    try:
        return await _Questions(readers, caller, cluster, identity).answers()
    finally:
        caller.close()


def _nothing(region: str, why: str, reason: Reason) -> Found:
    """Nothing could be asked: a gap for each question, so that no absence proves anything."""
    gaps = {each: Gap(AWS, each, reason, why) for each in _QUESTIONS}
    return CloudEvidence(region=region, refused=why), gaps, {}, []


class _Questions:
    """The questions of one run; what is not answered is noted in ``gaps``."""

    def __init__(
        self, readers: Readers, caller: Aws, cluster: ClusterEvidence, identity: Identity
    ) -> None:
        self._readers = readers
        self._caller = caller
        self._cluster = cluster
        self._identity = identity
        self._gaps: dict[str, Gap] = {}
        ids = {each.volume_id(identity.driver) or "" for each in cluster.volumes} - {""}
        cluster_id = cluster.cluster_id
        self._pages = VolumePages(ids, tags.of_cluster(cluster_id) if cluster_id else {})

    async def answers(self) -> Found:
        """Ask in two rounds: what there is, and then what may be done with it."""
        arn, instances, volumes, tagged, quotas, snapshot = await asyncio.gather(
            self._who("GetCallerIdentity", self._caller),
            self._noting("DescribeInstances", self._instances(), {}),
            self._volumes(),
            self._tagged(),
            self._quotas(),
            self._noting("DescribeSnapshots", self._snapshot(), ""),
        )
        samples = self._samples(instances, volumes, tagged, snapshot)
        late = Rights(refused=f"EC2 has not answered within {_PATIENCE_S:.0f} s")
        rights = await self._noting("DryRun", self._rights(samples, arn), late)
        of_rights: dict[str, Any] = {f.name: getattr(rights, f.name) for f in fields(rights)}
        evidence = CloudEvidence(
            region=self._caller.region,
            identity=arn,
            volumes=volumes,
            tagged=tagged,
            instances=instances,
            quotas=quotas,
            **of_rights,
        )
        calls = dict(self._caller.sent)
        for action, number in self._readers.cloud.sent().items():
            calls[action] = calls.get(action, 0) + number
        clocks = [Clock(f"AWS {name}", ahead) for name, ahead in self._caller.ahead_s.items()]
        return evidence, self._gaps, dict(sorted(calls.items())), clocks

    async def _noting(self, what: str, answer: Awaitable[A], otherwise: A) -> A:
        """An answer; ``otherwise`` and a gap if AWS gives none in time."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await answer
        except StorageError as error:
            self._gaps[what] = Gap(AWS, what, error.reason, f"{what}: {error.message}")
        except TimeoutError:
            why = f"{what}: AWS has not answered within {_PATIENCE_S:.0f} s"
            self._gaps[what] = Gap(AWS, what, Reason.TIMED_OUT, why)
        return otherwise

    async def _who(self, what: str, aws: Aws) -> str:
        answer = await self._noting(what, aws.call("sts", "GetCallerIdentity"), {})
        return str(answer.get("Arn", ""))

    async def _instances(self) -> dict[str, SeenInstance]:
        ids = sorted({node.instance_id for node in self._cluster.nodes} - {""})
        parts = [ids[at : at + _IDS_A_CALL] for at in range(0, len(ids), _IDS_A_CALL)]
        pages = await asyncio.gather(*(self._some_instances(part) for part in parts))
        return {each.instance_id: each for page in pages for each in page}

    async def _some_instances(self, ids: Sequence[str]) -> list[SeenInstance]:
        named = [{"Name": "instance-id", "Values": list(ids)}]
        answer = await self._caller.call("ec2", "DescribeInstances", Filters=named)
        return [
            _instance(each)
            for reservation in answer.get("Reservations", ())
            for each in reservation.get("Instances", ())
        ]

    async def _volumes(self) -> Mapping[str, Volume]:
        await self._pages.shown()
        found = await self._readers.cloud.volumes(self._pages.unseen())
        self._note_gaps()
        return {**self._pages.named, **found}

    def _note_gaps(self) -> None:
        """Those of the reader of EC2."""
        for gap in self._readers.cloud.gaps:
            text = f"{gap.what}: {gap.message}"
            self._gaps.setdefault(gap.what, Gap(AWS, gap.what, gap.reason, text))

    async def _tagged(self) -> list[Volume]:
        """Volumes with the cluster's tags; with no id of the cluster, none."""
        calls, cluster_id = self._readers.cloud.calls, self._cluster.cluster_id
        if not cluster_id or calls is None:
            return []
        await self._pages.shown()
        if self._pages.is_complete:
            return [*self._pages.tagged.values()]
        ours = Volumes(calls).find(tags=dict(tags.of_cluster(cluster_id)))
        return await self._noting("DescribeVolumes", ours, [])

    async def _snapshot(self) -> str:
        """One of the driver's, to try rights on."""
        made = [{"Name": f"tag:{MADE_BY_DRIVER}", "Values": ["true"]}]
        answer = await self._caller.call(
            "ec2", "DescribeSnapshots", OwnerIds=["self"], Filters=made, MaxResults=5
        )
        found = answer.get("Snapshots", ())
        return str(found[0]["SnapshotId"]) if found else ""

    async def _quotas(self) -> list[QuotaUse]:
        """The quotas that are known, and what is in use of them."""
        # Apart, as volumes wait for the count: AWS may be silent about its quotas alone.
        (limits, gaps), in_use = await asyncio.gather(
            self._noting("ListServiceQuotas", quotas.limits(self._caller), ({}, [])),
            self._noting("ListServiceQuotas", self._pages.count(self._readers.cloud), {}),
        )
        self._note_gaps()
        for gap in gaps:
            text = f"{gap.what}: {gap.message}"
            self._gaps.setdefault("ListServiceQuotas", Gap(AWS, gap.what, gap.reason, text))
        return [each for each in uses(in_use, limits) if each.limit is not None]

    def _samples(
        self,
        instances: Mapping[str, SeenInstance],
        volumes: Mapping[str, Volume],
        tagged: Sequence[Volume],
        snapshot: str,
    ) -> Samples:
        every = (*volumes.values(), *tagged)
        ours = [each for each in every if each.tags.get(MADE_BY_DRIVER) == "true"]
        free = [each for each in ours if each.state is VolumeState.AVAILABLE]
        attached = next((each for each in ours if each.attachments), None)
        volume = next(iter(free), attached)
        running = [each for each in instances.values() if each.state == "running"]
        near = [each for each in running if volume is None or each.zone == volume.zone]
        of_zone = {each.zone: each.instance_id for each in running}
        labelled = (zone_of(node.labels) or "" for node in self._cluster.nodes)
        zones = [each.zone for each in running] or [each for each in labelled if names_zone(each)]
        return Samples(
            zone=next(iter(zones), ""),
            volume_id=volume.volume_id if volume else "",
            size_gib=volume.size_gib if volume else 0,
            attached_id=attached.volume_id if attached else "",
            instance_id=near[0].instance_id if near else "",
            snapshot_id=snapshot,
            cluster_id=self._cluster.cluster_id or "",
            by_tags=right_rules.by_tags(volumes.values(), of_zone),
        )

    async def _rights(self, samples: Samples, arn: str) -> Rights:
        """Try them, as the identity that the command asks for."""
        why = why_not_as_controller(self._cluster, self._identity)
        if why and self._identity.account:
            return self._without_role(why)
        try:
            aws = self._caller if why else await self._tried_as()
        except StorageError as error:
            if not right_rules.is_refusal(error):
                return Rights(refused=error.message)
            account = self._cluster.account if self._identity.as_controller else None
            remedy = right_rules.how_to_assume(account, of_token=isinstance(error, KubeError))
            return Rights(not_assumed=NotAssumed(error.message, remedy))
        is_controllers = aws is not self._caller
        try:
            who = await self._who("GetCallerIdentity of the role", aws) if is_controllers else arn
            found = Rights(tried_as=who, is_controllers=is_controllers, not_as_controller=why)
            if refused := await why_no_tries(aws):
                return replace(found, refused=refused)
            tries, by_tags = await asyncio.gather(
                tried(aws, right_rules.attempts(samples)), tried(aws, right_rules.of_tags(samples))
            )
            of_classes = key_rules.of_classes(self._cluster.classes, self._identity.driver)
            keys, default_key = await asyncio.gather(
                named_keys(aws, of_classes, samples),
                default_key_of(self._caller, aws, of_classes, samples),
            )
            return replace(
                found,
                tries=tries,
                keys=keys,
                default_key=default_key,
                by_tags=by_tags,
                tried_as=who or "an unknown identity",
            )
        finally:
            if is_controllers:
                aws.close()

    def _without_role(self, why: str) -> Rights:
        """The ServiceAccount that is given has no role, or is not there, or could not be read."""
        if self._cluster.account is not None:
            return Rights(not_assumed=NotAssumed(why, right_rules.ROLE_FROM_ELSEWHERE))
        what = f"get {SERVICE_ACCOUNTS.plural}"
        gap = next((each for each in self._readers.cluster.gaps if each.what == what), None)
        if gap is None:
            return Rights(not_assumed=NotAssumed(why, right_rules.NO_ACCOUNT))
        if gap.is_right:
            return Rights(not_assumed=NotAssumed(gap.message, right_rules.READ_ACCOUNTS))
        return Rights(refused=gap.message)

    async def _tried_as(self) -> Aws:
        """The identity for tries: a role, the controller's own, or the caller's.

        Raises:
            StorageError: the role cannot be assumed.
        """
        if self._identity.role:
            return await self._caller.assume(self._identity.role)
        account = self._cluster.account
        if not self._identity.as_controller or account is None:
            return self._caller
        wanted = {"spec": {"audiences": [_AUDIENCE], "expirationSeconds": _TOKEN_S}}
        reply = await self._readers.cluster.client.create(
            TOKENS, wanted, account.metadata.namespace, name=account.name, subresource="token"
        )
        role = account.annotations[ROLE_ANNOTATION]
        return await self._caller.assume_by_token(role, reply.status.token)


def why_not_as_controller(cluster: ClusterEvidence, identity: Identity) -> str:
    """Why rights cannot be tried as the controller; "" if they can, or should not be."""
    if not identity.as_controller:
        return ""
    account = cluster.account
    if account is None and identity.account:
        return f"ServiceAccount {identity.account} was not found"
    if account is None:
        usual = " and ".join("/".join(each) for each in ACCOUNTS)
        return (
            "no ServiceAccount of a controller was found: neither that of the Deployment whose "
            "pod holds the leases, or of one of ebs-provisioner or aws-ebs-csi-driver, nor "
            f"{usual}"
        )
    if ROLE_ANNOTATION in account.annotations:
        return ""
    return (
        f"ServiceAccount {account.key} has no annotation {ROLE_ANNOTATION}: its role may come "
        "from EKS Pod Identity, or from the instance"
    )


async def why_no_tries(aws: Aws) -> str:
    """Why nothing may be tried: this EC2 does not know DryRun, or does not know who asks."""
    try:
        await aws.call("ec2", "DescribeAvailabilityZones", DryRun=True)
    except Ec2Error as answer:
        known = answer.code == right_rules.ALLOWED or answer.code in right_rules.REFUSED
        return "" if known else f"DescribeAvailabilityZones with DryRun: {answer.message}"
    return "this EC2 carries out what is sent with DryRun, so nothing was tried"


def _instance(document: Mapping[str, Any]) -> SeenInstance:
    mappings = document.get("BlockDeviceMappings") or ()
    ids = (str(each.get("Ebs", {}).get("VolumeId", "")) for each in mappings)
    instance_type = str(document.get("InstanceType", ""))
    limit = known_limit(instance_type)
    return SeenInstance(
        instance_id=str(document["InstanceId"]),
        zone=str(document.get("Placement", {}).get("AvailabilityZone", "")),
        state=str(document.get("State", {}).get("Name", "")),
        instance_type=instance_type,
        hop_limit=(document.get("MetadataOptions") or {}).get("HttpPutResponseHopLimit"),
        volume_ids=tuple(each for each in ids if each),
        most_volumes=limit.count if limit is not None else None,
        has_profile=bool(document.get("IamInstanceProfile")),
    )
