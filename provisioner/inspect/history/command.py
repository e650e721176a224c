"""``kubectl ebs history``: what happened to a claim and its volume."""

import asyncio
from collections.abc import Sequence

import click

from provisioner.ec2.batches import PAGE, one_of, pages
from provisioner.ec2.calls import Ec2Calls
from provisioner.inspect.command_line import Readers, Target, carry_out, reading, target_options
from provisioner.inspect.completion.objects import object_words
from provisioner.inspect.history import history_rules as rules
from provisioner.inspect.history.history_rules import DatedClaim, Moment
from provisioner.inspect.object_name_rules import ObjectName, claim_name
from provisioner.inspect.reading.kinds import EVENTS
from provisioner.inspect.terminal import screen
from provisioner.inspect.terminal.table_rules import table
from provisioner.kube.resources import ATTACHMENTS, CLAIMS, PERSISTENT_VOLUMES, Resource
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.errors import Reason, StorageError
from provisioner.model.persistent_volume import PersistentVolume

_DATED_CLAIMS = Resource("", "v1", CLAIMS.plural, CLAIMS.kind, DatedClaim)
_CLUSTER_WIDE_EVENTS = "default"  # where the API server keeps events of cluster-wide objects


@click.command()
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="[pvc] [NAMESPACE/]NAME",
    shell_complete=object_words(["pvc"]),
)
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table")
@target_options
def history(*, words: tuple[str, ...], output: str, target: Target) -> None:
    """Show what happened to a claim and its volume, the oldest first.

    From the claim, its PersistentVolume, VolumeAttachments, events, and EC2. Events are kept for an
    hour by default, EC2 shows the latest modification only, and detached nodes leave no trace. A
    claim that is gone is shown as far as a PersistentVolume still names it.

    Exit code 0; 1 if there is no such claim, or something could not be read.
    """
    try:
        name = claim_name(words, target.namespace, target.default_namespace)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    carry_out(_history(target, name, output))


async def _history(target: Target, name: ObjectName, output: str) -> int:
    async with reading(target) as readers:
        async with screen.progress("reading the history"):
            found = await _moments(readers, target, name)
            claim = await readers.cluster.one(_DATED_CLAIMS, name.name, name.namespace)
        is_absent = claim is None and not readers.cluster.misses(_DATED_CLAIMS)
        told = readers.gap_lines()
    if is_absent and not found:
        screen.warn(told)
        raise StorageError(Reason.OBJECT_NOT_FOUND, f"there is no {name}, and no trace of it")
    if is_absent:
        told = [f"there is no {name} any more: this is what is left of it", *told]
    if output == "json":
        screen.show_json(found)
    else:
        # Its last column is the story itself: on a narrow terminal it goes on in the next line.
        screen.show(table(rules.HEADINGS, map(rules.cells, found)))
    screen.warn(told)
    return 1 if told else 0


async def _moments(readers: Readers, target: Target, name: ObjectName) -> list[Moment]:
    cluster = readers.cluster
    of_it = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={name.name}"
    claim, events = await asyncio.gather(
        cluster.one(_DATED_CLAIMS, name.name, name.namespace),
        cluster.every(EVENTS, namespace=name.namespace, field_selector=of_it),
    )
    found = [*rules.of_events(events), *(rules.of_claim(claim) if claim is not None else ())]
    for each in await _persistent_volumes(readers, claim, name):
        volume_id = each.volume_id(target.driver)
        if volume_id:
            found += await _of_volume(readers, each, volume_id)
    return rules.in_order(found)


async def _persistent_volumes(
    readers: Readers, claim: DatedClaim | None, name: ObjectName
) -> Sequence[PersistentVolume]:
    """The one that the claim is bound to; else those that name it: it is gone, or not bound yet."""
    if claim is not None and claim.spec.volume_name:
        one = await readers.cluster.one(PERSISTENT_VOLUMES, claim.spec.volume_name)
        return [one] if one is not None else []
    return [
        each
        for each in await readers.cluster.every(PERSISTENT_VOLUMES)
        if (ref := each.spec.claim_ref) is not None
        and (ref.namespace, ref.name) == (name.namespace, name.name)
    ]


async def _of_volume(
    readers: Readers, persistent_volume: PersistentVolume, volume_id: str
) -> list[Moment]:
    of_it = f"involvedObject.kind=PersistentVolume,involvedObject.name={persistent_volume.name}"
    events, attachments, volumes, modifications, snapshots = await asyncio.gather(
        readers.cluster.every(EVENTS, namespace=_CLUSTER_WIDE_EVENTS, field_selector=of_it),
        readers.cluster.every(ATTACHMENTS),
        readers.cloud.volumes([volume_id]),
        readers.cloud.modifications([volume_id]),
        _snapshots(readers, volume_id),
    )
    name = persistent_volume.name
    mine = [each for each in attachments if each.spec.source.persistent_volume_name == name]
    return [
        *rules.of_persistent_volume(persistent_volume, volume_id),
        *rules.of_events(events),
        *rules.of_attachments(mine),
        *(moment for each in volumes.values() for moment in rules.of_volume(each)),
        *(moment for each in modifications.values() for moment in rules.of_modification(each)),
        *rules.of_snapshots(snapshots),
    ]


async def _snapshots(readers: Readers, volume_id: str) -> Sequence[EbsSnapshot]:
    calls = readers.cloud.calls
    if calls is None:
        return []
    return await readers.cloud.ask("DescribeSnapshots", _snapshots_of(calls, volume_id), [])


async def _snapshots_of(calls: Ec2Calls, volume_id: str) -> list[EbsSnapshot]:
    found: list[EbsSnapshot] = []
    params = {
        "OwnerIds": ["self"],
        "Filters": [one_of("volume-id", [volume_id])],
        "MaxResults": PAGE,
    }
    async for page in pages(lambda each: calls.call("DescribeSnapshots", each), params):
        found.extend(page["Snapshots"])
    return found
