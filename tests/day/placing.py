"""Volumes that are in an account before anything begins, and what there is in the end.

They are put beside the calls of EC2, into the tables that the strict EC2 answers from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.model.volume import Volume
from provisioner.sandbox.strict_ec2 import motos, records
from tests.day.oracle import Shown


def put_volume(backend: Any, volume: Volume, instances: Mapping[str, Any], device: str) -> None:
    """Put a gp3 volume into moto's backend, attached as it says.

    Args:
        backend: moto's, of the volume's region.
        volume: with its tags.
        instances: moto's, or what its rules take for one, by their ids.
        device: its name on each of them.
    """
    made = motos.Volume(
        backend,
        volume_id=volume.volume_id,
        size=volume.size_gib,
        zone=next(each for each in backend.zones[volume.zone[:-1]] if each.name == volume.zone),
        volume_type="gp3",
        iops=3000,
        throughput=125,
    )
    backend.volumes[made.id] = made
    backend.tags[made.id].update(volume.tags)
    for each in volume.attachments:
        records.put_attachment(made, instances[each.instance_id], device, state="attached")


def shown(backend: Any) -> dict[str, Shown]:
    """All volumes, for the oracle."""
    found = {}
    for volume_id, volume in backend.volumes.items():
        record = records.record_of(volume)
        held = tuple(i for i, a in record.attachments.items() if a.status == "attached")
        found[volume_id] = Shown(record.state == "deleting", held)
    return found
