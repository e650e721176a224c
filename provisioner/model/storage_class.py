"""Storage classes."""

from provisioner.model.meta import KubeObject
from provisioner.model.zone import TopologyTerm

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


class StorageClass(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A StorageClass."""

    provisioner: str = ""
    parameters: dict[str, str] | None = None
    reclaim_policy: str | None = None
    mount_options: list[str] | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None

    @property
    def waits_for_consumer(self) -> bool:
        """Whether the scheduler chooses the node before a volume is made."""
        return self.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
