"""A StorageClass as it is used: its parameters and topologies, read once a revision."""

from dataclasses import dataclass, replace

from provisioner.classes import in_tree_rules
from provisioner.classes import storage_class_parameter_rules as class_parameters
from provisioner.classes.attribute_rules import Attributes
from provisioner.classes.storage_class_parameter_rules import Parameters
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import TopologyTerm


@dataclass(frozen=True, slots=True)
class ReadClass:
    """A class as it is used.

    ``storage_class`` is the object of the API; ``allowed_topologies`` are its own, or those that
    an in-tree class means by ``zone`` and ``zones``.
    """

    storage_class: StorageClass
    parameters: Parameters
    allowed_topologies: tuple[TopologyTerm, ...] = ()
    is_in_tree: bool = False

    @property
    def name(self) -> str:
        """The class's name."""
        return self.storage_class.name


def read(storage_class: StorageClass) -> ReadClass:
    """Read a class.

    Raises:
        ValueError: one sentence that names the parameter, its value and what would help.
    """
    if storage_class.provisioner == IN_TREE_DRIVER:
        return ReadClass(
            storage_class,
            class_parameters.parse(in_tree_rules.parameters_of(storage_class)),
            in_tree_rules.topologies_of(storage_class),
            is_in_tree=True,
        )
    return ReadClass(
        storage_class,
        class_parameters.parse(storage_class.parameters or {}),
        tuple(storage_class.allowed_topologies or ()),
    )


def with_attributes(read_class: ReadClass, asks: Attributes) -> ReadClass:
    """The class as a claim means it that is born with a VolumeAttributesClass, which counts more.

    Source: aws-ebs-csi-driver v1.64 pkg/driver/controller.go: mutable parameters at CreateVolume.
    """
    has = read_class.parameters
    says_iops = asks.iops is not None or asks.iops_per_gib is not None
    templates = {template.key: template for template in has.tag_templates}
    templates |= {template.key: template for template in asks.tag_templates}
    follows = asks.iops_follow_growth
    parameters = replace(
        has,
        volume_type=asks.volume_type or has.volume_type,
        iops=asks.iops if says_iops else has.iops,
        iops_per_gib=asks.iops_per_gib if says_iops else has.iops_per_gib,
        iops_follow_growth=has.iops_follow_growth if follows is None else follows,
        throughput_mibps=asks.throughput_mibps or has.throughput_mibps,
        tag_templates=tuple(t for key, t in templates.items() if key not in asks.deleted_tags),
    )
    return replace(read_class, parameters=parameters)
