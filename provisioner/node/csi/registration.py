"""Who we are: how the kubelet learns of us, and CSI's Identity service.

The kubelet finds our socket in its registry, asks, and tells the outcome. One that restarts looks
through its registry and asks again; one that refuses us asks again by itself, ever more slowly. So
there is nothing to try again here: the socket has to be there (``node/csi/endpoint.py``), and what
the kubelet tells has to be seen.
"""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import structlog

from provisioner.model.sentences import printable
from provisioner.node.csi.server import Rpc, untimed
from provisioner.node.csi.wire import csi_pb2, registration_pb2
from provisioner.node.metrics.counters import NodeMetrics

log = structlog.get_logger(__name__)

_KIND = "CSIPlugin"
_CSI = "1.0.0"  # as all plugins of CSI 1 say; the kubelet takes any 1.x
_CAN = csi_pb2.PluginCapability


class Registration:
    """The kubelet's side of it: what it was told, and what it has said last.

    Args:
        driver: the name to register.
        socket: of the CSI services, as the kubelet sees it.
    """

    def __init__(self, driver: str, socket: Path, metrics: NodeMetrics) -> None:
        self._driver = driver
        self._socket = socket
        self._metrics = metrics
        self._is_registered = False
        self._refusal = ""

    def not_ready(self) -> str:
        """What keeps the kubelet from using us; "" if nothing does."""
        if self._refusal:
            return f"the kubelet refuses to register {self._driver}: {self._refusal}"
        return "" if self._is_registered else f"the kubelet has not registered {self._driver} yet"

    def rpcs(self) -> Sequence[Rpc[Any, Any]]:
        """The methods of pluginregistration.Registration."""
        return [
            Rpc("GetInfo", registration_pb2.InfoRequest, untimed(self.info)),
            Rpc(
                "NotifyRegistrationStatus",
                registration_pb2.RegistrationStatus,
                untimed(self.status),
            ),
        ]

    async def info(self, _: registration_pb2.InfoRequest) -> registration_pb2.PluginInfo:
        """What is to be registered."""
        return registration_pb2.PluginInfo(
            type=_KIND, name=self._driver, endpoint=str(self._socket), supported_versions=[_CSI]
        )

    async def status(
        self, told: registration_pb2.RegistrationStatus
    ) -> registration_pb2.RegistrationStatusResponse:
        """Whether it was done; after a refusal the kubelet tries it again."""
        self._is_registered = told.plugin_registered
        self._metrics.registered.set(int(told.plugin_registered))
        if told.plugin_registered:
            self._refusal = ""
            log.info("registered with the kubelet", driver=self._driver)
        else:
            self._refusal = printable(told.error) or "it does not say why"
            self._metrics.refusals.inc()
            log.error("not registered with the kubelet", driver=self._driver, error=self._refusal)
        return registration_pb2.RegistrationStatusResponse()


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
