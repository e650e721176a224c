"""Decide about a volume that stays: its claim gets another PersistentVolume of it, and no copy.

That one may be in CSI form where the old one is in-tree, be of another class, or name another
driver of EBS volumes. AWS runs EKS Auto Mode's; its own program for the same change deletes the
claim first, wants the policy Retain and a tag, and changes nothing else of the volume.
Source: awslabs/eks-auto-mode-ebs-migration-tool, README and pkg/migrator; EKS user guide "Enable
EKS Auto Mode on existing EKS clusters" (read 2026-11-28).
"""

from dataclasses import dataclass
from typing import Any

from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.moving import form_rules
from provisioner.controller.moving.facts_rules import Facts
from provisioner.controller.moving.together import place_rules
from provisioner.model.document import Document
from provisioner.model.driver import AUTO_MODE_DRIVER, EBS_DRIVER, IN_TREE_DRIVER
from provisioner.model.names import CLAIM_NAME, MADE_BY_DRIVER, UNCLAIMED
from provisioner.model.persistent_volume import PROVISIONED_BY
from provisioner.model.volume import Volume
from provisioner.model.volume_move import VolumeMove

Json = dict[str, Any]
# On a volume: the cluster whose Auto Mode may attach it. Its role may not add the tag itself.
# Source: AWS managed policies AmazonEKSBlockStoragePolicy and …V2 (read 2026-11-28).
AUTO_MODE_TAG = "eks:eks-cluster-name"
# On the nodes of Auto Mode, the only ones that have its driver; its classes allow no others.
# Source: EKS user guide "Create a storage class" (read 2026-11-28).
_AUTO_MODE_NODES = {
    "key": "eks.amazonaws.com/compute-type",
    "operator": "In",
    "values": ["auto"],
}


@dataclass(frozen=True, slots=True)
class Change:
    """Whose the PersistentVolume is, and whose it is to be; a driver, or the in-tree plugin."""

    now: str
    then: str

    @property
    def is_any(self) -> bool:
        """Whether it is to be of another one, or in another form."""
        return self.now != self.then

    @property
    def is_of_driver(self) -> bool:
        """Whether another driver is to have the volume; the plugin's are its successor's."""
        return self.is_any and (self.now, self.then) != (IN_TREE_DRIVER, EBS_DRIVER)

    def is_alone(self, move: VolumeMove) -> bool:
        """Whether nothing else is asked for, so that no class is looked at."""
        return not move.spec.to.asks_for_another_volume


def driver_to_be(facts: Facts) -> str:
    """The driver that the class names, or the one that there is."""
    found, chosen = facts.persistent_volume, facts.storage_class
    if facts.move.spec.to.storage_class_name and chosen is not None:
        return chosen.provisioner
    return form_rules.driver_of(found) if found is not None else ""


def may_have(driver: str, ours: str) -> bool:
    """Whether a driver has EBS volumes, so that one can go from it or to it."""
    return driver in (ours, EBS_DRIVER, AUTO_MODE_DRIVER)


def change_of(facts: Facts, old: Document) -> Change:
    """What the old PersistentVolume is, and what the new one is to be."""
    now = str((old.spec.get("csi") or {}).get("driver") or IN_TREE_DRIVER)
    return Change(now, driver_to_be(facts))


def is_of_another_driver(facts: Facts, driver: str) -> bool:
    """Whether another controller may be the one to carry a move out.

    Auto Mode has none that knows of moves, so the driver that its volume goes to takes it.
    """
    found, kept = facts.persistent_volume, facts.kept
    whose = form_rules.driver_of(found) if found is not None else ""
    if whose in ("", driver):
        return False
    if kept is not None and kept.move is not None and kept.move.source.driver == driver:
        return False
    return whose != AUTO_MODE_DRIVER or driver_to_be(facts) != driver


def refused(facts: Facts, driver: str) -> str | None:
    """Why the driver or the form of its PersistentVolume does not allow a move, in one sentence."""
    move, found = facts.move, facts.persistent_volume
    whose = form_rules.driver_of(found) if found is not None else ""
    if found is None or whose in ("", driver):
        return form_rules.refused(move, found, driver) if found is not None else None
    if move.goes_back:
        return (
            f"PersistentVolume {found.name} belongs to the driver {whose}, and VolumeMove "
            f"{move.spec.to.source} has copied nothing: to go back, move the claim to a class of "
            f"driver {driver}"
        )
    if not may_have(whose, driver) or driver_to_be(facts) != driver:
        return form_rules.refused(move, found, driver)
    return form_rules.refused(move, found, whose)


def named_twice(facts: Facts, other: str, volume_id: str) -> str:
    """What is to be done about another PersistentVolume of the volume, in one sentence."""
    keepers = (each for each in facts.others if each.keeps_volume)
    keeper = next((each for each in keepers if each.source.persistent_volume == other), None)
    if keeper is None:
        return (
            f"PersistentVolume {other} names volume {volume_id} as well, so it may be written to "
            "during the move; delete that PersistentVolume first"
        )
    return (
        f"PersistentVolume {other}, which VolumeMove {keeper.name} has kept, names volume "
        f"{volume_id} as well: delete it first (as long as its policy is Retain, the volume stays)"
    )


def no_copy(change: Change, volume: Volume, wrong: str | None) -> str:
    """Why a volume does not go to another driver as it is; ``wrong``: what it has."""
    return (
        f"volume {volume.volume_id} is to go from driver {change.now} to {change.then} as it is, "
        f"and {wrong or 'more is asked for'}: name a class with its own parameters and nothing "
        "else, or modify the volume first"
    )


def not_ready(change: Change, volume: Volume) -> str | None:
    """Why the other driver could not use the volume, in one sentence."""
    tags, volume_id = volume.tags, volume.volume_id
    if not change.is_of_driver:
        return None
    if UNCLAIMED in tags:  # by it, a volume counts as blank whoever else has written to it
        return (
            f"volume {volume_id} has the tag {UNCLAIMED}, which is removed within a minute after "
            "the volume was made: create another VolumeMove then"
        )
    if change.then == AUTO_MODE_DRIVER:
        if tags.get(AUTO_MODE_TAG):
            return None
        return (
            f"volume {volume_id} lacks the tag {AUTO_MODE_TAG}, without which EKS Auto Mode may "
            "not attach it: add it, with the name of the cluster as its value"
        )
    if tags.get(MADE_BY_DRIVER) == "true" or tags.get(CLAIM_NAME):
        return None
    return (
        f"volume {volume_id} lacks the tag {MADE_BY_DRIVER}=true, without which driver "
        f"{change.then} may not attach it: add it"
    )


def notes(facts: Facts, change: Change, read_class: ReadClass) -> list[str]:
    """What is done instead of a copy, and what a human should know of it."""
    move, found, volume = facts.move, facts.persistent_volume, facts.volume
    if found is None or volume is None:
        return []
    what = f"of driver {change.then} " if change.is_of_driver else ""
    what += "in CSI form " if change.now == IN_TREE_DRIVER else ""
    stays = (
        f"volume {volume.volume_id} stays, and nothing is copied: PersistentVolume {found.name} "
        f"gets the policy Retain, and PersistentVolume {move.persistent_volume_name} {what}takes "
        "its place"
    )
    told = [stays]
    policy = read_class.storage_class.reclaim_policy
    is_kept = form_rules.policy_before(found) == "Retain"
    if move.spec.to.storage_class_name and is_kept and policy != "Retain":
        told.append(f"the reclaim policy stays Retain, although the class says {policy}")
    if change.is_of_driver:
        told += place_rules.notes(facts.pods, facts.nodes, volume.zone, change.then)
        told.append(
            f"afterwards, the volume is attached, grown and deleted by driver {change.then} alone; "
            "pods have to be on its nodes"
        )
    return told


def of_driver(body: Json, driver: str) -> Json:
    """The new PersistentVolume, as one of this driver."""
    meta, spec = body["metadata"], body["spec"]
    made_by = {PROVISIONED_BY: driver} if PROVISIONED_BY in meta["annotations"] else {}
    if driver == AUTO_MODE_DRIVER:
        (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
        expressions = [*term["matchExpressions"], _AUTO_MODE_NODES]
        terms = [{"matchExpressions": expressions}]
        spec = spec | {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    return body | {
        "metadata": meta | {"annotations": meta["annotations"] | made_by},
        "spec": spec | {"csi": spec["csi"] | {"driver": driver}},
    }
