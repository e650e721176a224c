"""StorageClasses; VolumeAttributesClasses, which say what of a volume may change in use."""

from provisioner.model.driver import EBS_DRIVER, IN_TREE_DRIVER
from provisioner.model.meta import KubeObject
from provisioner.model.names import CLONE_ACROSS_ZONES
from provisioner.model.zone import TopologyTerm

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
BINDING_MODES = ("Immediate", WAIT_FOR_FIRST_CONSUMER)
RECLAIM_POLICIES = ("Delete", "Retain")


class StorageClass(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A StorageClass."""

    provisioner: str = ""
    parameters: dict[str, str] | None = None
    reclaim_policy: str | None = None
    mount_options: list[str] | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None

    def is_of(self, driver: str) -> bool:
        """Whether a driver makes the volumes of the class.

        Kubernetes has moved the in-tree plugin's classes to the driver under its own name only.
        """
        is_moved = self.provisioner == IN_TREE_DRIVER and driver == EBS_DRIVER
        return is_moved or self.provisioner == driver

    @property
    def clones_across_zones(self) -> bool:
        """Whether clones may be made in another zone than their source's."""
        return self.annotations.get(CLONE_ACROSS_ZONES) == "true"

    @property
    def waits_for_consumer(self) -> bool:
        """Whether the scheduler chooses the node before a volume is made."""
        return self.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


class VolumeAttributesClass(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A VolumeAttributesClass; the API server lets nobody change its parameters.

    Source: Kubernetes 1.36 storage.k8s.io/v1 (GA since 1.34).
    """

    driver_name: str = ""
    parameters: dict[str, str] | None = None
