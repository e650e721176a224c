"""The calls that are answered here instead of by moto."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from moto.core.exceptions import ServiceException

from provisioner.sandbox.strict_ec2 import (
    attachments,
    copies,
    describe,
    encryption,
    fast_restores,
    modifications,
    motos,
    snapshot_locks,
    snapshots,
    statuses,
    tags,
    volumes,
)
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error
from provisioner.sandbox.strict_ec2.params import Params, check_ids
from provisioner.sandbox.strict_ec2.world import World

ACTIONS: Final[Mapping[str, Callable[[Call], str]]] = {
    "AttachVolume": attachments.attach_volume,
    "CopyVolumes": copies.copy_volumes,
    "CreateSnapshot": snapshots.create_snapshot,
    "CreateTags": tags.create_tags,
    "CreateVolume": volumes.create_volume,
    "DeleteSnapshot": snapshots.delete_snapshot,
    "DeleteTags": tags.delete_tags,
    "DeleteVolume": volumes.delete_volume,
    "DescribeFastSnapshotRestores": fast_restores.describe_fast_snapshot_restores,
    "DescribeLockedSnapshots": snapshot_locks.describe_locked_snapshots,
    "DescribeSnapshots": snapshots.describe_snapshots,
    "DescribeVolumeStatus": statuses.describe_volume_status,
    "DescribeVolumes": describe.describe_volumes,
    "DescribeVolumesModifications": modifications.describe_volumes_modifications,
    "DetachVolume": attachments.detach_volume,
    "DisableFastSnapshotRestores": fast_restores.disable_fast_snapshot_restores,
    "EnableFastSnapshotRestores": fast_restores.enable_fast_snapshot_restores,
    "GetEbsDefaultKmsKeyId": encryption.get_ebs_default_kms_key_id,
    "LockSnapshot": snapshot_locks.lock_snapshot,
    "ModifyVolume": modifications.modify_volume,
    "UnlockSnapshot": snapshot_locks.unlock_snapshot,
}


def _backend(world: World, account: str, region: str) -> Any:
    """Return moto's backend; moto looks through every region it knows, each time."""
    known = world.backends.get((account, region))
    if known is None:
        known = world.backends[account, region] = motos.ec2_backends[account][region]
    return known


def carry_out(
    world: World, account: str, region: str, action: str, flat: Mapping[str, str]
) -> tuple[int, str]:
    """Carry out one call by our rules; return the HTTP status and the XML."""
    try:
        check_ids(flat)
        backend = _backend(world, account, region)
        return 200, ACTIONS[action](Call(world, backend, Params(flat)))
    except Ec2Error as error:
        return error.status, error.xml()
    except ServiceException as error:
        return 400, Ec2Error(error.code, error.message).xml()
    except Exception as error:  # a mistake of ours must look like one of EC2's, and be seen
        logging.getLogger(__name__).exception("%s %s", action, flat)
        return 500, Ec2Error("InternalError", f"strict EC2: {error!r}").xml()
