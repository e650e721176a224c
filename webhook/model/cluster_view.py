"""What the webhook keeps of the cluster: projections, not objects.

10,000 persistent volumes and claims must fit beside the imports in 35 MiB, so each is cut down to
what a review asks of it.
"""

import msgspec

from provisioner.model.zone import ZONE_KEYS

Zones = frozenset[str]


class ClaimView(msgspec.Struct, frozen=True, gc=False):
    """A claim: which persistent volume it is bound to, else which class will make one.

    One that is being deleted has neither.

    Attributes:
        volume_name: ``spec.volumeName`` once it is bound (``bind-completed``), else "".
        class_name: its StorageClass, "" for none.
        uid: its own, by which a persistent volume names it.
    """

    volume_name: str
    class_name: str
    uid: str = ""


class VolumeView(msgspec.Struct, frozen=True, gc=False):
    """A persistent volume on EBS.

    Attributes:
        volume_id: the EBS volume, bare.
        zones: the zones in which its node affinity lets pods run, or for lack of one the label of
            an in-tree one; None when nothing that counts is said about zones.
        claim_namespace: where its claim is, or was (``claimRef``), "" for none.
        claim_uid: of that claim, "" for none, or while it is only reserved for one.
    """

    volume_id: str
    zones: Zones | None
    claim_namespace: str = ""
    claim_uid: str = ""


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """A node: where it is, and whether pods can come to it.

    Attributes:
        labels: its topology labels only.
        zone: of those, None if they tell none, or more than one.
        schedulable: not cordoned.
        has_driver: our driver is registered on it (CSINode).
    """

    labels: tuple[tuple[str, str], ...]
    zone: str | None
    schedulable: bool
    has_driver: bool

    def may_be_in(self, zones: Zones) -> bool:
        """Whether one of its labels says that it is in one of the zones."""
        if self.zone is not None:
            return self.zone in zones
        return any(key in ZONE_KEYS and value in zones for key, value in self.labels)


class ClassView(msgspec.Struct, frozen=True, gc=False):
    """A StorageClass of our driver or of the in-tree one.

    Attributes:
        waits: ``WaitForFirstConsumer``.
        zones: what ``allowedTopologies`` names; None for no limit.
        goes_across: clones may be made in another zone than their source's.
    """

    waits: bool
    zones: Zones | None
    goes_across: bool = False
