"""Registration with the kubelet, and CSI's Identity service.

The kubelet finds our socket in its plugin registry, calls GetInfo and reports the outcome. It does
so again when it restarts, and, with a growing backoff, after it has refused. So nothing is retried
here: the socket has to exist (``node/csi/endpoint.py``), and the outcome is shown.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from provisioner.model.sentences import printable
from provisioner.node.csi.server import Rpc, untimed
from provisioner.node.csi.wire import csi_pb2, registration_pb2
from provisioner.node.metrics.counters import NodeMetrics
from provisioner.version import our_version

log = structlog.get_logger(__name__)

_KIND = "CSIPlugin"
_CSI = "1.0.0"  # as all plugins of CSI 1; the kubelet accepts any 1.x
_CAN = csi_pb2.PluginCapability


class Registration:
    """The service that the kubelet calls to register us, and the outcome that it reported last.

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
        """Why the kubelet does not use us; "" if it does."""
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
        """What to register."""
        return registration_pb2.PluginInfo(
            type=_KIND, name=self._driver, endpoint=str(self._socket), supported_versions=[_CSI]
        )

    async def status(
        self, outcome: registration_pb2.RegistrationStatus
    ) -> registration_pb2.RegistrationStatusResponse:
        """The outcome; after a refusal the kubelet tries again."""
        self._is_registered = outcome.plugin_registered
        self._metrics.registered.set(int(outcome.plugin_registered))
        if outcome.plugin_registered:
            self._refusal = ""
            log.info("registered with the kubelet", driver=self._driver)
        else:
            self._refusal = printable(outcome.error) or "no reason given"
            self._metrics.refusals.inc()
            log.error(
                "the kubelet refused to register the driver",
                driver=self._driver,
                error=self._refusal,
            )
        return registration_pb2.RegistrationStatusResponse()


class Identity:
    """CSI's Identity service."""

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
        """Volumes belong to zones, and can be expanded while they are in use.

        Not CONTROLLER_SERVICE, which the stock driver declares: our controller works on the
        Kubernetes API and serves no CSI. Nobody in Kubernetes asks a node plugin for it.
        """
        zones = _CAN.Service(type=_CAN.Service.VOLUME_ACCESSIBILITY_CONSTRAINTS)
        online = _CAN.VolumeExpansion(type=_CAN.VolumeExpansion.ONLINE)
        return csi_pb2.GetPluginCapabilitiesResponse(
            capabilities=[_CAN(service=zones), _CAN(volume_expansion=online)]
        )

    async def probe(self, _: csi_pb2.ProbeRequest) -> csi_pb2.ProbeResponse:
        """Always ready: whatever else is missing is reported by the call that needs it."""
        reply = csi_pb2.ProbeResponse()
        reply.ready.value = True
        return reply
