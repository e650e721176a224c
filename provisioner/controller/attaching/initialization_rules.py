"""Decide whether an attachment waits until its volume has all of its data.

A volume made of a snapshot or of another volume can be used at once, slowly: its blocks arrive
later. A class with ``blockAttachUntilInitialized`` wants them to be there first. So the volume is
attached, and only reported as attached once EC2 says that it is initialized.
Source: aws-ebs-csi-driver v1.64 ControllerPublishVolume; EBS user guide "Monitor the status of
Amazon EBS volume initialization" (read 2026-11-22).
"""

from provisioner.model.modification import Initialization
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume

# EC2 can take 5 minutes to report progress. If it reports nothing for twice as long, it has nothing
# to report, and a slow volume is better than none.
UNTOLD_S = 600.0


def is_awaited(
    persistent_volume: PersistentVolume | None,
    volume: Volume | None,
    initialization: Initialization | None,
    waited_s: float,
) -> bool:
    """Whether an attachment of this volume is not to be reported yet.

    Args:
        persistent_volume: what is attached; None for an inline volume.
        volume: as it was seen on its instance.
        initialization: what EC2 says; None if it was not asked since.
        waited_s: since AttachVolume was sent.
    """
    if persistent_volume is None or not persistent_volume.attaches_when_initialized:
        return False
    if volume is None or not made_of(volume):
        return False
    if initialization is None:
        return True
    untold = is_untold(initialization)
    return not initialization.is_complete and not (untold and waited_s >= UNTOLD_S)


def is_untold(initialization: Initialization | None) -> bool:
    """Whether EC2 was asked, and has reported no progress."""
    if initialization is None or initialization.is_complete:
        return False
    return not initialization.state and initialization.progress_percent is None


def made_of(volume: Volume) -> str:
    """What a volume's data comes from, for a sentence; "" for one that was created empty.

    EC2 names either for as long as the volume exists. Source: API reference, Volume: ``snapshotId``
    and ``sourceVolumeId``, which is "only for volume copies" (botocore 1.44).
    """
    if volume.snapshot_id:
        return f"snapshot {volume.snapshot_id}"
    return f"volume {volume.source_volume_id}" if volume.source_volume_id else ""


def sentence(volume: Volume, initialization: Initialization | None) -> str:
    """What the claim's user is told while its pod waits."""
    known = ""
    if initialization is not None and initialization.estimated_s is not None:
        known = f"; EC2 estimates {_span(initialization.estimated_s)} more"
    elif initialization is not None and initialization.progress_percent is not None:
        known = f"; {initialization.progress_percent} % has arrived"
    return (
        f"volume {volume.volume_id} is attached; its pod waits until all data of "
        f"{made_of(volume)} has arrived, as its class requires "
        f"(blockAttachUntilInitialized){known}"
    )


def given_up(volume: Volume) -> str:
    """What the claim's user is told when EC2 has reported no progress for ``UNTOLD_S``."""
    return (
        f"volume {volume.volume_id} is reported as attached before its data has arrived, although "
        "its class requires to wait (blockAttachUntilInitialized): EC2 has reported no progress "
        f"for {_span(int(UNTOLD_S))}; reads can be slow until all data of {made_of(volume)} has "
        "arrived"
    )


def _span(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{-(-seconds // 60)} minutes"  # noqa: PLR2004
