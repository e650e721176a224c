"""A StorageClass as it is used: its parameters and topologies, read once a revision."""

from dataclasses import dataclass

from provisioner.decide import in_tree
from provisioner.model import parameters as class_parameters
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.parameters import Parameters
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
            class_parameters.parse(in_tree.parameters_of(storage_class)),
            in_tree.topologies_of(storage_class),
            is_in_tree=True,
        )
    return ReadClass(
        storage_class,
        class_parameters.parse(storage_class.parameters or {}),
        tuple(storage_class.allowed_topologies or ()),
    )
