"""``ebs-provisioner volumes``: reads the API server and EC2 live, changes neither.

What EC2 has is asked for after what Kubernetes wants, so that a volume that is in the table's first
columns and not in EC2 really is missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from provisioner.decide import volumes_table as rules
from provisioner.decide.volumes_table import Allowance, Seen
from provisioner.ec2.batches import whole
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import CLAIMS, PERSISTENT_VOLUMES
from provisioner.metrics import Metrics
from provisioner.model.budget import ANNOTATION, Ledger
from provisioner.model.claim import Claim
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.modification import Modification
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.region import find_region


@dataclass(frozen=True, slots=True)
class Question:
    """What the command was asked.

    Attributes:
        namespace: of the claims whose volumes are shown; "" for all volumes.
        kubeconfig: the cluster; None for the usual one.
        driver: whose volumes these are, besides in-tree ones.
        region: of EC2; None for AWS_REGION, or that of the Nodes or of this instance.
    """

    namespace: str
    kubeconfig: str | None
    driver: str
    region: str | None


async def answer(question: Question) -> list[str]:
    """The table, line by line.

    Raises:
        StorageError: the API server or EC2 cannot be asked; one clear line.
    """
    async with await KubeClient.connect(kubeconfig=question.kubeconfig) as client:
        claims = await client.list(CLAIMS, namespace=question.namespace)
        found = await client.list(PERSISTENT_VOLUMES)
        region = await find_region(client, question.region)
    wanted = _wanted(found.items, question)
    calls = Ec2Calls.connect(region=region, metrics=Metrics())
    try:
        seen = await _look(calls, wanted, claims.items)
    finally:
        await calls.close()
    return list(rules.lines(seen))


def _wanted(
    every: Sequence[PersistentVolume], question: Question
) -> list[tuple[PersistentVolume, str]]:
    """Persistent volumes that are to be shown, each with its volume; two may name the same one."""
    found: list[tuple[PersistentVolume, str]] = []
    for each in every:
        ref = each.spec.claim_ref
        volume_id = each.volume_id(question.driver)
        if volume_id and question.namespace in {"", ref.namespace if ref else None}:
            found.append((each, volume_id))
    return found


async def _look(
    calls: Ec2Calls, wanted: Sequence[tuple[PersistentVolume, str]], claims: Sequence[Claim]
) -> list[Seen]:
    """Ask EC2 for all of them, by filters: no odd id then fails the others."""
    if not wanted:
        return []
    ids = sorted({volume_id for _, volume_id in wanted})
    volumes = whole(await Volumes(calls).look_for(ids))
    latest = whole(await Modifications(calls).latest(ids))
    pending: dict[str, list[EbsSnapshot]] = {}
    for snapshot in await Snapshots(calls).pending():
        pending.setdefault(snapshot.volume_id, []).append(snapshot)
    by_key = {claim.key: claim for claim in claims}
    now = datetime.now(UTC)
    return [
        Seen(
            persistent_volume=each,
            volume_id=volume_id,
            claim=_claim(each, by_key),
            volume=volumes.get(volume_id),
            modification=latest.get(volume_id),
            allowance=_allowance(each, volume_id, latest.get(volume_id), now),
            pending=pending.get(volume_id, ()),
        )
        for each, volume_id in wanted
    ]


def _claim(persistent_volume: PersistentVolume, by_key: Mapping[str, Claim]) -> Claim | None:
    ref = persistent_volume.spec.claim_ref
    claim = by_key.get(f"{ref.namespace}/{ref.name}") if ref else None
    return claim if claim is not None and rules.is_of(persistent_volume, claim) else None


def _allowance(
    persistent_volume: PersistentVolume,
    volume_id: str,
    latest: Modification | None,
    now: datetime,
) -> Allowance:
    ledger = Ledger.read(
        persistent_volume.annotations.get(ANNOTATION),
        persistent_volume_uid=persistent_volume.uid,
        volume_id=volume_id,
    )
    ledger = ledger.believed(now)
    return Allowance(ledger.left(latest, now), ledger.more_at(latest, now))
