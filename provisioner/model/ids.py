"""The form of EC2's ids. EC2 has nothing under any other name.

The author of a PersistentVolume, a pod or a VolumeSnapshotContent can name anything there; EC2
refuses a whole call for one such name. So it is refused on its own object, and never sent.
"""

import re

# Eight digits, or seventeen (EC2 user guide "Resource IDs", read 2026-11-22); more may come.
_DIGITS = "[0-9a-f]{1,32}"
_VOLUME = re.compile(f"vol-{_DIGITS}")
_SNAPSHOT = re.compile(f"snap-{_DIGITS}")
_INSTANCE = re.compile(f"i-{_DIGITS}")
_ANY = re.compile(rf"\b(?:vol|snap|i)-{_DIGITS}\b")


def is_volume_id(text: str) -> bool:
    """Whether the text has the form of an EBS volume's id."""
    return _VOLUME.fullmatch(text) is not None


def is_snapshot_id(text: str) -> bool:
    """Whether the text has the form of an EBS snapshot's id."""
    return _SNAPSHOT.fullmatch(text) is not None


def is_instance_id(text: str) -> bool:
    """Whether the text has the form of an EC2 instance's id.

    The node ids of SageMaker HyperPod, ``hyperpod-…-i-…``, have not: EC2's calls do not take them.
    """
    return _INSTANCE.fullmatch(text) is not None


def ids_in(text: str) -> frozenset[str]:
    """The ids that a sentence names."""
    return frozenset(_ANY.findall(text))
