"""What the controller may do in EC2: each action tried with DryRun, and how answers are read.

EC2 answers a DryRun with ``DryRunOperation`` where the request would be carried out and with
``UnauthorizedOperation`` where a right is missing; nothing is changed (EC2 API reference, "Common
query parameters", read 2026-11-23). A policy that looks at tags needs a real volume or snapshot to
look at, so those of the cluster are taken. Nothing is tried before a DryRun that only reads has
shown that this EC2 knows DryRun; and what destroys is tried where EC2 would refuse it anyway, or
not at all: DeleteVolume on an attached volume, DetachVolume on one that is not attached.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.classes import volume_attributes_class_rules
from provisioner.inspect.doctor.check_rules import (
    Check,
    Finding,
    Rule,
    Verdict,
    asked_elsewhere,
    counted,
    ok,
    skipped,
    some,
    unknown,
)
from provisioner.inspect.doctor.evidence_rules import Evidence, Try
from provisioner.inspect.reading.controller_rules import ours
from provisioner.inspect.shell_words import shell
from provisioner.model import tags
from provisioner.model.errors import Ec2Error, Reason, StorageError
from provisioner.model.meta import KubeObject
from provisioner.model.names import CLAIM_NAME, MADE_BY_DRIVER, UNCLAIMED
from provisioner.model.volume import Volume

ALLOWED = "DryRunOperation"
REFUSED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
# STS: the account has no such OIDC provider, or the provider does not accept the token.
_NOT_TRUSTED = "InvalidIdentityToken"
# What EC2 has against the state of a volume; whoever lacks the right hears that first.
_AFTER_RIGHTS = frozenset({"VolumeInUse", "IncorrectState", "IncorrectModificationState"})
_DESCRIBES = (
    "DescribeAvailabilityZones",
    "DescribeFastSnapshotRestores",
    "DescribeInstanceTypes",
    "DescribeInstances",
    "DescribeLockedSnapshots",
    "DescribeSnapshots",
    "DescribeVolumeStatus",
    "DescribeVolumes",
    "DescribeVolumesModifications",
)
# What AWS's own policy for its driver lacks.
# Source: AWS Managed Policy reference, AmazonEBSCSIDriverPolicyV2 v1, of 2026-04-16 (read
# 2026-11-23).
NOT_IN_AWS_POLICY = frozenset({"DescribeFastSnapshotRestores", "DescribeLockedSnapshots"})
_OWNER = tags.Owner("kube-system", "kubectl-ebs-doctor", "kubectl-ebs-doctor", "Delete")
_GIB = 4
_TAGGING = "CreateTags"  # by itself; with a creation, it is tried there
_TRIED_TAG = "kubectl-ebs-doctor"
_TAGGED_AT_ONCE = 100  # a command that fits on a screen
_KINDS_TRIED = 10  # calls, of all sets of tags that volumes have
_RECONCILE = "--reconcile-extra-tags"
AS_CONTROLLER = "try it as the controller: --as-controller, or --role ARN"
ROLE_FROM_ELSEWHERE = (
    "a role of EKS Pod Identity or of an instance is tried with --role ARN, once its trust policy "
    "allows you sts:AssumeRole (docs/kubectl-ebs.md#whose-rights)"
)
READ_ACCOUNTS = "you need the right to get serviceaccounts in its namespace"
NO_ACCOUNT = "correct NAMESPACE/NAME, or apply the manifests of the controller first"


@dataclass(frozen=True, slots=True)
class Samples:
    """What actions are tried on; "" for what the cluster does not have.

    Attributes:
        zone: of the nodes.
        volume_id: of a volume with the driver's tag, one that is not attached where there is one.
        size_gib: of that volume.
        attached_id: of one that is attached.
        instance_id: of a running instance, in the zone of ``volume_id`` where there is one.
        snapshot_id: of a snapshot with the driver's tag.
        cluster_id: of the controller.
        by_tags: a volume for each set of tag keys, and an instance in its zone.
    """

    zone: str = ""
    volume_id: str = ""
    size_gib: int = 0
    attached_id: str = ""
    instance_id: str = ""
    snapshot_id: str = ""
    cluster_id: str = ""
    by_tags: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call to be tried; ``missing`` says why it cannot be."""

    action: str
    on: str
    params: Mapping[str, Any]
    missing: str = ""


def attempts(samples: Samples) -> Iterator[Attempt]:
    """A call for each action that the controller needs."""
    for action in _DESCRIBES:
        yield Attempt(action, "everything", {})
    yield creation(samples)
    yield from _on_a_volume(samples)
    yield from _on_a_snapshot(samples)


def creation(samples: Samples, key: str = "") -> Attempt:
    """A CreateVolume as the controller sends it, encrypted with ``key`` unless it is ""."""
    if not samples.zone:
        return Attempt("CreateVolume", "", {}, "no zone of a Node is known")
    encryption = {"Encrypted": True, "KmsKeyId": key} if key else {}
    params = {
        "AvailabilityZone": samples.zone,
        "Size": _GIB,
        "VolumeType": "gp3",
        "TagSpecifications": [_tags("volume", samples)],
        **encryption,
    }
    return Attempt("CreateVolume", f"a new volume in {samples.zone}", params)


def _tags(kind: str, samples: Samples) -> dict[str, Any]:
    pairs = (
        dict(tags.of_new_volume(_OWNER, cluster_id=samples.cluster_id, extra={}))
        if kind == "volume"
        else {MADE_BY_DRIVER: "true"}
        | (tags.of_cluster(samples.cluster_id) if samples.cluster_id else {})
    )
    return {"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in pairs.items()]}


def _on_a_volume(samples: Samples) -> Iterator[Attempt]:
    volume, attached = samples.volume_id, samples.attached_id
    none = "" if volume else "EC2 has no volume with the driver's tag to try it on"
    not_attached = "" if attached else "no volume of the driver is attached"
    here = {"VolumeId": volume}
    yield Attempt("ModifyVolume", volume, {**here, "Size": samples.size_gib + 1}, none)
    snapshot = {**here, "TagSpecifications": [_tags("snapshot", samples)]}
    yield Attempt("CreateSnapshot", volume, snapshot, none)
    copy = {"SourceVolumeId": volume, "TagSpecifications": [_tags("volume", samples)]}
    yield Attempt("CopyVolumes", volume, copy, none)
    mark = {"Resources": [volume], "Tags": [{"Key": UNCLAIMED}]}
    yield Attempt("DeleteTags", volume, mark, none)
    written = {"Resources": [volume], "Tags": [{"Key": _TRIED_TAG, "Value": ""}]}
    yield Attempt(_TAGGING, volume, written, none)
    no_instance = none or ("" if samples.instance_id else "no instance of a Node is running")
    yield _attachment(volume, samples.instance_id, no_instance)
    in_use = none or ("every volume of the driver is attached" if volume == attached else "")
    yield Attempt("DetachVolume", volume, here, in_use)
    yield Attempt("DeleteVolume", attached, {"VolumeId": attached}, not_attached)


def of_tags(samples: Samples) -> Iterator[Attempt]:
    """Whether the controller's policy, which may be another than ours, takes these volumes."""
    for each in samples.by_tags:
        yield _attachment(*each)


def _attachment(volume: str, instance: str, missing: str = "") -> Attempt:
    params = {"VolumeId": volume, "InstanceId": instance, "Device": "/dev/xvddx"}
    return Attempt("AttachVolume", volume, params, missing)


def _on_a_snapshot(samples: Samples) -> Iterator[Attempt]:
    snapshot = samples.snapshot_id
    none = "" if snapshot else "EC2 has no snapshot with the driver's tag to try it on"
    yield Attempt("DeleteSnapshot", snapshot, {"SnapshotId": snapshot}, none)
    lock = {"SnapshotId": snapshot, "LockMode": "governance", "LockDuration": 1}
    yield Attempt("LockSnapshot", snapshot, lock, none)
    restore = {"SourceSnapshotIds": [snapshot], "AvailabilityZones": [samples.zone]}
    yield Attempt("EnableFastSnapshotRestores", snapshot, restore, none)


def is_refusal(error: StorageError) -> bool:
    """Whether the answer to an attempt to assume a role is a no, which trying again cannot turn."""
    if isinstance(error, Ec2Error):
        return error.code in REFUSED or error.code == _NOT_TRUSTED
    return error.reason is Reason.FORBIDDEN


def how_to_assume(account: KubeObject | None, *, of_token: bool) -> str:
    """What lets rights be tried as a role.

    Args:
        account: the ServiceAccount whose token was to be used, None to assume the role as you.
        of_token: whether the API server has refused that token.
    """
    if account is None:
        return (
            "let the role's trust policy allow you sts:AssumeRole; if it is a role of a "
            "ServiceAccount, try it as that: --as-service-account NAMESPACE/NAME "
            "(docs/kubectl-ebs.md#whose-rights)"
        )
    if of_token:
        return f"you need the right to create serviceaccounts/token of {account.key}"
    subject = f"system:serviceaccount:{account.metadata.namespace}:{account.name}"
    return (
        "the controller cannot assume it either: let the role's trust policy allow "
        f"sts:AssumeRoleWithWebIdentity to the subject {subject}, by this cluster's OIDC issuer "
        "(docs/install.md)"
    )


def checks(seen: Evidence) -> Iterator[Check]:
    """One check for each action, or one that says why nothing was tried."""
    cloud = seen.cloud
    title = "the controller has its rights in EC2"
    if cloud.not_assumed is not None:
        remedy = cloud.not_assumed.remedy
        yield Check(
            "iam", Verdict.FAILED, title, f"nothing was tried: {cloud.not_assumed.why}", remedy
        )
        return
    if cloud.refused or not cloud.tries:
        yield Check(
            "iam",
            Verdict.UNKNOWN,
            title,
            cloud.refused or "EC2 was not asked",
            "see the checks region and aws-identity",
        )
        return
    for each in cloud.tries:
        if each.action == _TAGGING and each.code in REFUSED:
            yield _untagged(each, seen)
            continue
        found = verdict(each, is_controllers=cloud.is_controllers, who=cloud.tried_as)
        title = f"ec2:{each.action} is allowed"
        yield Check(f"iam-{each.action}", found.verdict, title, found.proof, found.remedy)


def _untagged(tried: Try, seen: Evidence) -> Check:
    """Most controllers never tag what exists already, and their policies do not allow it."""
    name, title = f"iam-{tried.action}", f"ec2:{tried.action} is allowed on existing volumes"
    by = _tagged_by(seen)
    if by is None:
        proof = f"{tried.code} on {tried.on}; no VolumeAttributesClass and no {_RECONCILE} needs it"
        return Check(name, Verdict.SKIPPED, title, proof)
    found = verdict(tried, is_controllers=seen.cloud.is_controllers, who=seen.cloud.tried_as)
    remedy = found.remedy
    if found.verdict is Verdict.FAILED:
        remedy = f"allow ec2:{tried.action} as {by[1]} does (docs/reference/iam.md)"
    return Check(name, found.verdict, title, f"{found.proof}; {by[0]} needs it", remedy)


def _tagged_by(seen: Evidence) -> tuple[str, str] | None:
    """What has existing volumes tagged, and the policy that allows that."""
    for each in seen.cluster.attributes_classes:
        try:
            read = volume_attributes_class_rules.parse(each.parameters or {})
        except ValueError:
            continue
        if each.driver_name == seen.driver and (read.tag_templates or read.iops_follow_growth):
            return f"VolumeAttributesClass {each.name}", "manifests/iam/attribute-tags-policy.json"
    for controller in ours(seen.cluster.deployments, "controller"):
        if any(_RECONCILE in (each.args or ()) for each in controller.containers):
            return f"{_RECONCILE} of {controller.key}", "manifests/iam/extra-tags-policy.json"
    return None


def verdict(tried: Try, *, is_controllers: bool, who: str) -> Finding:
    """What an answer means. The caller's missing right proves nothing about the controller's."""
    if not tried.code:
        return Finding(Verdict.SKIPPED, tried.message)
    if tried.code in _AFTER_RIGHTS:
        return ok(
            f"DryRun on {tried.on} as {who}: {tried.code}, which EC2 says after its look at rights"
        )
    if tried.code == ALLOWED:
        return ok(f"DryRun on {tried.on} as {who}: {tried.code}")
    proof = f"DryRun on {tried.on} as {who}: {tried.code}: {_brief(tried.message)}"
    if tried.code in REFUSED and is_controllers:
        return Finding(Verdict.FAILED, proof, _remedy(tried.action))
    if tried.code in REFUSED:
        return unknown(
            f"{proof}; this is not the controller's identity",
            AS_CONTROLLER,
        )
    return unknown(proof, "this answer says neither yes nor no about the right")


def _remedy(action: str) -> str:
    text = (
        f"allow ec2:{action} as manifests/iam/controller-policy.json does (docs/reference/iam.md)"
    )
    if action in NOT_IN_AWS_POLICY:
        text += "; AWS's AmazonEBSCSIDriverPolicyV2 does not have it"
    return text


def _brief(message: str) -> str:
    """Without the encoded message, which only ``aws sts decode-authorization-message`` reads."""
    return message.partition(" Encoded authorization failure")[0].strip()


def is_taken(found: Mapping[str, str]) -> bool:
    """Whether manifests/iam/controller-policy.json takes a volume with these tags."""
    return found.get(MADE_BY_DRIVER) == "true" or CLAIM_NAME in found


def _kind(found: Mapping[str, str]) -> frozenset[str]:
    """What volumes have in common that policies, ours or not, can be assumed to treat alike."""
    return frozenset(found) | ({"taken"} if is_taken(found) else frozenset())


def by_tags(volumes: Iterable[Volume], near: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """A volume for each set of tag keys, and an instance: those first that our policy leaves out.

    Args:
        volumes: of PersistentVolumes.
        near: a running instance, by zone.
    """
    kinds: dict[frozenset[str], tuple[str, str]] = {}
    for each in sorted(volumes, key=lambda volume: is_taken(volume.tags)):
        if each.zone in near:
            kinds.setdefault(_kind(each.tags), (each.volume_id, near[each.zone]))
    return tuple(kinds.values())[:_KINDS_TRIED]


def _volume_tags(seen: Evidence) -> Finding:
    """The policies of others may take all volumes, as those of aws-ebs-csi-driver long did."""
    owners = {each.volume_id(seen.driver) or "": each.name for each in seen.cluster.volumes}
    owners.pop("", None)
    if not owners:
        return skipped(f"no PersistentVolume is of {seen.driver}")
    if not seen.is_confirmed_cloud:
        return asked_elsewhere(seen)
    volumes = {each: seen.cloud.volumes[each] for each in owners if each in seen.cloud.volumes}
    bare = {each for each, found in volumes.items() if not is_taken(found.tags)}
    answers = _answers(seen, volumes)
    refused = [each for each, found in answers.items() if found.verdict is Verdict.FAILED]
    if refused:
        named, answer = some(_named(refused, owners)), answers[refused[0]]
        taggable = [each for each in refused if each in bare]
        remedy = _tagging(taggable) if taggable else (answer.remedy, "")
        return Finding(
            Verdict.FAILED,
            f"the controller is refused {named}; AttachVolume: {answer.proof}",
            *remedy,
        )
    open_ = sorted(each for each in bare if each not in answers or _is_open(answers[each]))
    if open_:
        named = some(_named(open_, owners))
        proof = f"no tag that manifests/iam/controller-policy.json takes: {named}"
        tried = [answers[each].proof for each in open_ if each in answers]
        proof += f"; AttachVolume: {tried[0]}" if tried else ""
        return Finding(Verdict.WARNING, proof, *_tagging(open_))
    if unanswered := next(filter(_is_open, answers.values()), None):
        return unknown(f"AttachVolume: {unanswered.proof}", unanswered.remedy)
    without = f"; AttachVolume is allowed on {len(bare)} without such a tag" if bare else ""
    return ok(f"{counted(len(volumes), 'volume')} checked{without}")


def _is_open(answer: Finding) -> bool:
    return answer.verdict is not Verdict.OK


def _answers(seen: Evidence, volumes: Mapping[str, Volume]) -> dict[str, Finding]:
    """What the controller is told of volumes, by id: one was tried for all with the same tags."""
    if not seen.cloud.is_controllers:
        return {}
    kinds = {
        _kind(volumes[each.on].tags): verdict(each, is_controllers=True, who=seen.cloud.tried_as)
        for each in seen.cloud.by_tags
        if each.on in volumes
    }
    return {
        each: kinds[kind]
        for each, found in sorted(volumes.items())
        if (kind := _kind(found.tags)) in kinds
    }


def _named(ids: list[str], owners: Mapping[str, str]) -> list[str]:
    return [f"{each} of PersistentVolume {owners[each]}" for each in ids]


def _tagging(ids: list[str]) -> tuple[str, str]:
    """What would help, and the command."""
    first = ids[:_TAGGED_AT_ONCE]
    remedy = (
        "tag them: manifests/iam/controller-policy.json takes volumes with the driver's tag "
        "(docs/reference/iam.md)"
    )
    if len(first) < len(ids):
        remedy += f"; the command names {len(first)}: then run this check again for the others"
    command = f"aws ec2 create-tags --resources{' {}' * len(first)} --tags {{}}"
    return remedy, shell(command, *first, f"Key={MADE_BY_DRIVER},Value=true")


RULES = (
    Rule(
        "volume-tags",
        "the controller's policy takes the volumes of all PersistentVolumes",
        ("persistentvolumes", "DescribeVolumes"),
        _volume_tags,
    ),
)
