"""CSI's Identity service."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from provisioner.node.server import Rpc, untimed
from provisioner.node.wire import csi_pb2

_CAN = csi_pb2.PluginCapability


def our_version() -> str:
    """The distribution's; "0" in a source tree that was never installed."""
    try:
        return version("ebs-provisioner")
    except PackageNotFoundError:
        return "0"


class Identity:
    """Answers who we are."""

    def __init__(self, driver: str) -> None:
        self._driver = driver

    def rpcs(self) -> Sequence[Rpc[Any, Any]]:
        """The methods of csi.v1.Identity."""
        return [
            Rpc("GetPluginInfo", csi_pb2.GetPluginInfoRequest, untimed(self.info)),
            Rpc(
                "GetPluginCapabilities",
                csi_pb2.GetPluginCapabilitiesRequest,
                untimed(self.capabilities),
            ),
            Rpc("Probe", csi_pb2.ProbeRequest, untimed(self.probe)),
        ]

    async def info(self, _: csi_pb2.GetPluginInfoRequest) -> csi_pb2.GetPluginInfoResponse:
        """Name and version."""
        return csi_pb2.GetPluginInfoResponse(name=self._driver, vendor_version=our_version())

    async def capabilities(
        self, _: csi_pb2.GetPluginCapabilitiesRequest
    ) -> csi_pb2.GetPluginCapabilitiesResponse:
        """That volumes belong to zones, and grow while they are in use.

        Not CONTROLLER_SERVICE, which the stock driver declares: our controller works on the
        Kubernetes API and serves no CSI. Nobody in Kubernetes asks a node plugin for it.
        """
        zones = _CAN.Service(type=_CAN.Service.VOLUME_ACCESSIBILITY_CONSTRAINTS)
        online = _CAN.VolumeExpansion(type=_CAN.VolumeExpansion.ONLINE)
        return csi_pb2.GetPluginCapabilitiesResponse(
            capabilities=[_CAN(service=zones), _CAN(volume_expansion=online)]
        )

    async def probe(self, _: csi_pb2.ProbeRequest) -> csi_pb2.ProbeResponse:
        """Who answers is ready: what else is needed is found when it is needed."""
        reply = csi_pb2.ProbeResponse()
        reply.ready.value = True
        return reply
