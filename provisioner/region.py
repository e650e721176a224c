"""The Region of AWS that EC2 is asked in: given, or found; for each of our programs that asks."""

import asyncio

import structlog

from provisioner.ec2 import account_rules, botocore_client
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import NODES
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.process import Check

_AGAIN_S = 10.0

log = structlog.get_logger(__name__)


class Start:
    """What the probes see from the first moment on: nothing works before the Region is known.

    Attributes:
        region: "" until it is found.
        working: once it works: why it is not ready, asked again each time.
    """

    def __init__(self, given: str | None) -> None:
        self.region = given or ""
        self.working: Check | None = None
        self._why_not = "the AWS region is not known yet"

    def not_ready(self) -> str:
        """Why it cannot work yet, "" when nothing speaks against it."""
        return self._why_not if self.working is None else self.working()

    async def find_region(self, client: KubeClient) -> None:
        """Look for it until something tells it."""
        given = self.region
        while True:
            try:
                self.region = await find_region(client, given)
            except StorageError as error:
                if error.message != self._why_not:
                    log.warning("cannot start yet", error=error.message)
                self._why_not = error.message
                await asyncio.sleep(error.retry_after_s or _AGAIN_S)
            else:
                if not given:
                    log.info("found the AWS region", region=self.region)
                return


async def find_region(client: KubeClient, given: str | None) -> str:
    """The Region: given, told by the environment, by the Nodes, or by the instance's metadata.

    Raises:
        StorageError: it cannot be told; one clear line.
    """
    told = given or await asyncio.to_thread(botocore_client.told_region)
    if told:
        return told
    try:
        nodes = await client.list(NODES)
    except KubeError as error:
        raise StorageError(
            error.reason,
            f"no AWS region is given, and the Nodes cannot tell one: {error.message}",
            retry_after_s=error.retry_after_s,
        ) from error
    regions = account_rules.regions_of(nodes.items)
    if len(regions) > 1:
        where = "; ".join(regions.values())
        raise StorageError(
            Reason.INVALID_REQUEST,
            f"no AWS region, and the Nodes are in several ({where}): give --region or AWS_REGION",
        )
    found = next(iter(regions), "") or await asyncio.to_thread(botocore_client.region_of_instance)
    if not found:
        raise StorageError(
            Reason.INVALID_REQUEST,
            "no AWS region: no Node tells one (providerID, topology.kubernetes.io/region), nor "
            "does the instance's metadata service: give --region or AWS_REGION",
        )
    return found
