"""Decide to which VolumeAttributesClass a claim's volume is to be brought.

Source: external-resizer 2.0 pkg/modifycontroller (Kubernetes 1.36 VolumeAttributesClass, GA since
1.34). ``status.modifyVolumeStatus`` names the class that was started. It is not given up for
another one while a ModifyVolume for it may have been sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from provisioner.classes import volume_attributes_class_rules as class_parameters
from provisioner.classes.storage_class_rules import ReadClass
from provisioner.classes.volume_attributes_class_rules import Attributes, with_attributes
from provisioner.model import tags
from provisioner.model.claim import Claim
from provisioner.model.decision import SETTLED, Refuse, Settled
from provisioner.model.errors import Reason
from provisioner.model.names import IOPS_FOLLOW_GROWTH, IOPS_PER_GIB
from provisioner.model.storage_class import VolumeAttributesClass
from provisioner.model.tag_template import Names


class ModifyStatus(StrEnum):
    """``status.modifyVolumeStatus.status`` of a claim."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    INFEASIBLE = "Infeasible"


@dataclass(frozen=True, slots=True)
class Cancel:
    """A change that was never sent is no longer requested."""


@dataclass(frozen=True, slots=True)
class Target:
    """The volume is to be brought to the class of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no class of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Broken:
    """No volume can get this class; ``message`` is one sentence."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Change:
    """What the class of this name asks for; "" for the annotations from before there were any."""

    name: str
    attributes: Attributes


def target_of(claim: Claim, *, is_free: bool) -> Settled | Cancel | Target:
    """Say which class the volume is to get: the requested one, or one that is in flight.

    ``is_free``: nothing is in flight for the class that the status names.
    """
    status, wanted = claim.modify_status, claim.attributes_class_name
    if status is None:
        is_there = wanted in ("", claim.current_attributes_class_name)
        return SETTLED if is_there else Target(wanted)
    begun = status.target_volume_attributes_class_name
    if status.status == ModifyStatus.IN_PROGRESS and begun and not is_free:
        return Target(begun)
    return Target(wanted) if wanted else Cancel()


def read(
    name: str, found: VolumeAttributesClass | None, *, is_served: bool, driver: str, is_csi: bool
) -> Missing | Broken | Change:
    """Read the class of a name.

    Args:
        name: of the class.
        found: None only when the API server has none of that name.
        is_served: whether the API server has the kind as ``storage.k8s.io/v1``. Where it has only
            v1beta1, as EKS before 1.34 does, claims name classes all the same.
        driver: ours.
        is_csi: the persistent volume names the driver; an in-tree one can have no class.
    """
    if found is None and not is_served:
        return Broken(
            name,
            f"VolumeAttributesClass {name!r} cannot be read: the API server does not serve "
            "VolumeAttributesClasses of storage.k8s.io/v1, which Kubernetes has from 1.34 on "
            "(v1beta1 is not supported); upgrade, or use a claim without a class",
        )
    if found is None:
        return Missing(name)
    if not is_csi:
        return Broken(
            name,
            "the PersistentVolume uses the in-tree plugin, which does not support "
            "VolumeAttributesClasses; only its size can be changed",
        )
    if found.driver_name != driver:
        return Broken(
            name,
            f"VolumeAttributesClass {name!r} is for driver {found.driver_name!r}, not {driver}",
        )
    try:
        return Change(name, class_parameters.parse(found.parameters or {}))
    except ValueError as error:
        return Broken(name, f"VolumeAttributesClass {name!r}: {error}")


def annotated(claim: Claim, done: Mapping[str, str], *, driver: str) -> Settled | Broken | Change:
    """What the annotations of volume-modifier-for-k8s ask for and the volume does not have yet.

    ``done``: annotations of the persistent volume, where what was done is noted. They count
    only for a claim that names no class.
    """
    asked = class_parameters.legacy(claim.annotations, driver)
    if not asked or claim.attributes_class_name or claim.modify_status is not None:
        return SETTLED
    if asked.items() <= class_parameters.legacy(done, driver).items():
        return SETTLED
    try:
        read_ = class_parameters.of_annotations(claim.annotations, driver)
    except ValueError as error:
        return Broken("", f"annotations {driver}/…: {error}")
    return Change("", read_) if read_ is not None else SETTLED


def tags_of(change: Change | None, claim: Claim) -> dict[str, str]:
    """The tags that a change writes on the claim's volume, rendered for it.

    Raises:
        ValueError: one sentence that names the tag and what is wrong with it.
    """
    if change is None:
        return {}
    meta = claim.metadata
    names = Names(meta.namespace, meta.name, claim.spec.volume_name)
    return tags.rendered(change.attributes.tag_templates, names)


def following_of(change: Change | None) -> dict[str, str]:
    """How IOPS follow the size, kept in tags as of a StorageClass: later growth reads them."""
    if change is None:
        return {}
    asks, written = change.attributes, {}
    if asks.iops_per_gib is not None:
        written[IOPS_PER_GIB] = str(asks.iops_per_gib)
    if asks.iops_follow_growth is not None:
        written[IOPS_FOLLOW_GROWTH] = str(asks.iops_follow_growth).lower()
    return written


def outdated_of(change: Change | None) -> tuple[str, ...]:
    """The keys of such tags that no longer count, because the class gives IOPS for any size."""
    if change is None or change.attributes.iops is None:
        return ()
    written = following_of(change)
    return tuple(key for key in (IOPS_PER_GIB, IOPS_FOLLOW_GROWTH) if key not in written)


def with_class(
    claim: Claim,
    read_class: ReadClass,
    found: VolumeAttributesClass | None,
    *,
    is_served: bool,
    driver: str,
) -> ReadClass | Refuse:
    """The class of a claim that names a VolumeAttributesClass before it has a volume: both in one.

    ``found`` and ``is_served`` are as for ``read``.
    """
    name = claim.attributes_class_name
    is_csi = not read_class.is_in_tree
    asked = read(name, found, is_served=is_served, driver=driver, is_csi=is_csi)
    match asked:
        case Change():
            return with_attributes(read_class, asked.attributes)
        case Missing():
            return Refuse(
                Reason.CLASS_NOT_FOUND,
                f"VolumeAttributesClass {name!r} does not exist; create it, or recreate the "
                "claim with another class",
                settled=True,
            )
        case Broken(message=message):
            return Refuse(Reason.INVALID_CLASS, message, settled=True)
