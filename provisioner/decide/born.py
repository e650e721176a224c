"""A claim that names a VolumeAttributesClass before it has a volume: it is made so at once."""

from provisioner.decide import attributes
from provisioner.decide.provision import Refuse
from provisioner.decide.storage_class import ReadClass, with_attributes
from provisioner.model.claim import Claim
from provisioner.model.errors import Reason
from provisioner.model.volume_attributes_class import VolumeAttributesClass


def with_class(
    claim: Claim,
    read_class: ReadClass,
    found: VolumeAttributesClass | None,
    *,
    driver: str,
) -> ReadClass | Refuse:
    """The claim's class with what its VolumeAttributesClass says, or why there is none.

    ``found`` is None only when the API server has none of that name.
    """
    name = claim.attributes_class_name
    read = attributes.read(name, found, driver=driver, is_csi=not read_class.is_in_tree)
    match read:
        case attributes.Change():
            return with_attributes(read_class, read.attributes)
        case attributes.Missing():
            return Refuse(
                Reason.CLASS_NOT_FOUND,
                f"VolumeAttributesClass {name!r} does not exist; create it, or make the claim "
                "again with another one",
                settled=True,
            )
        case attributes.Broken(message=message):
            return Refuse(Reason.INVALID_CLASS, message, settled=True)
