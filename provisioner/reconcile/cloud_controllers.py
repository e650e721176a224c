"""Whether a cloud controller manager looks after the nodes: by its lease.

As with our own leases the clock here counts, and not the times in the record: a lease is held until
it has not changed for its own duration as seen from here.
"""

import asyncio

from provisioner.kube.client import KubeClient
from provisioner.kube.lease import HeldLease, boot_clock

# The default of k8s.io/cloud-provider, which AWS's uses, and what k3s and RKE2 call theirs.
LEASES = (
    "cloud-controller-manager",
    "k3s-cloud-controller-manager",
    "rke2-cloud-controller-manager",
)
NAMESPACE = "kube-system"
_DURATION_S = 15  # where a record tells none


class CloudControllers:
    """Looks at the leases; those who ask at once share a look, never older than the question."""

    def __init__(self, client: KubeClient) -> None:
        self._leases = [
            HeldLease(
                client,
                namespace=NAMESPACE,
                name=name,
                identity="",
                duration_s=_DURATION_S,
                clock=boot_clock,
            )
            for name in LEASES
        ]
        self._looking = asyncio.Lock()
        self._looked_since_s = float("-inf")  # when the last look began

    async def held_for_s(self) -> float:
        """Seconds until all leases have expired if nobody renews them; 0 when none is held.

        The first look at a lease that has a holder counts as fresh: whether it is dead is seen
        once its duration is over.

        Raises:
            KubeError: a lease could not be read, so that it may be held.
        """
        asked_at_s = asyncio.get_running_loop().time()
        async with self._looking:
            # A look that began after we asked, for somebody else who waited, is good for us too.
            if self._looked_since_s < asked_at_s:
                began_at_s = asyncio.get_running_loop().time()
                for lease in self._leases:
                    await lease.look()
                self._looked_since_s = began_at_s
            return max(lease.expires_in_s for lease in self._leases)
