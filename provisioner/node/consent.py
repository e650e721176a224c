"""Whether the persistent volume of a volume allows that it is erased; read only when asked."""

from provisioner.decide.format import CONSENT, Consent
from provisioner.node.kube import NodeKube


class Consents:
    """Finds a volume's persistent volume by its attachment to this node."""

    def __init__(self, kube: NodeKube) -> None:
        self._kube = kube

    async def of(self, volume_id: str) -> Consent:
        """What the persistent volume says now.

        Raises:
            KubeError: it cannot be read.
        """
        attachment = await self._kube.attachment(volume_id)
        name = attachment.persistent_volume if attachment is not None else ""
        volume = await self._kube.persistent_volume(name) if name else None
        # The attachment's word is checked: the right volume, or nothing is allowed.
        if volume is None or volume.volume_id(self._kube.driver) != volume_id:
            return Consent("")
        return Consent(name, volume.annotations.get(CONSENT))
