"""A controller for csi-sanity: volumes are files, attached ones are loop devices that look like EBS.

It makes a whole plugin of the node's: what it does not serve itself goes to the node plugin, byte by
byte, and comes back so, but for one capability that it adds (the plugin as a whole then has a
controller).
"""

import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from provisioner.model.errors import NodeError, Reason
from provisioner.node.csi.server import Rpc, untimed
from provisioner.node.csi.wire import csi_pb2
from provisioner.sandbox.real_node import loops
from provisioner.sandbox.real_node.plugs import Machine, Plug
from tests.node import controller_pb2

_PASSED_ON = ("/csi.v1.Node/", "/csi.v1.Identity/")
_CAPABILITIES = "/csi.v1.Identity/GetPluginCapabilities"
_PATIENCE_S = 10.0
_CAN = controller_pb2.ControllerServiceCapability


class SanityController:
    """Volumes by their ids; at most one machine has them."""

    def __init__(self, machine: Machine, files: Path) -> None:
        self._machine = machine
        self._files = files
        self._attached: dict[str, tuple[loops.Loop, Plug]] = {}

    def rpcs(self) -> Sequence[Rpc[Any, Any]]:
        pb = controller_pb2
        return [
            Rpc(
                "ControllerGetCapabilities",
                pb.ControllerGetCapabilitiesRequest,
                untimed(self.capabilities),
            ),
            Rpc("CreateVolume", pb.CreateVolumeRequest, untimed(self.create)),
            Rpc("DeleteVolume", pb.DeleteVolumeRequest, untimed(self.delete)),
            Rpc("ControllerPublishVolume", pb.ControllerPublishVolumeRequest, untimed(self.attach)),
            Rpc(
                "ControllerUnpublishVolume",
                pb.ControllerUnpublishVolumeRequest,
                untimed(self.detach),
            ),
            Rpc("ControllerExpandVolume", pb.ControllerExpandVolumeRequest, untimed(self.grow)),
        ]

    async def capabilities(
        self, _: controller_pb2.ControllerGetCapabilitiesRequest
    ) -> controller_pb2.ControllerGetCapabilitiesResponse:
        kinds = (
            _CAN.RPC.CREATE_DELETE_VOLUME,
            _CAN.RPC.PUBLISH_UNPUBLISH_VOLUME,
            _CAN.RPC.EXPAND_VOLUME,
        )
        return controller_pb2.ControllerGetCapabilitiesResponse(
            capabilities=[_CAN(rpc=_CAN.RPC(type=kind)) for kind in kinds]
        )

    async def create(
        self, request: controller_pb2.CreateVolumeRequest
    ) -> controller_pb2.CreateVolumeResponse:
        volume_id = f"vol-{hashlib.sha256(request.name.encode()).hexdigest()[:17]}"
        with self._file(volume_id).open("ab") as file:
            file.truncate(request.capacity_range.required_bytes)
        volume = controller_pb2.Volume(
            volume_id=volume_id, capacity_bytes=request.capacity_range.required_bytes
        )
        return controller_pb2.CreateVolumeResponse(volume=volume)

    async def delete(
        self, request: controller_pb2.DeleteVolumeRequest
    ) -> controller_pb2.DeleteVolumeResponse:
        if request.volume_id in self._attached:
            raise NodeError(Reason.TARGET_BUSY, f"{request.volume_id} is attached")
        self._file(request.volume_id).unlink(missing_ok=True)
        return controller_pb2.DeleteVolumeResponse()

    async def attach(
        self, request: controller_pb2.ControllerPublishVolumeRequest
    ) -> controller_pb2.ControllerPublishVolumeResponse:
        volume_id = request.volume_id
        if volume_id not in self._attached:
            loop = loops.make(self._file(volume_id))
            plug = Plug(self._machine, volume_id, f"nvme{loop.number}n1", loop)
            plug.put()
            self._attached[volume_id] = loop, plug
        return controller_pb2.ControllerPublishVolumeResponse(
            publish_context={"devicePath": "/dev/xvdba", "ebs-provisioner.io/made-from": "blank"}
        )

    async def detach(
        self, request: controller_pb2.ControllerUnpublishVolumeRequest
    ) -> controller_pb2.ControllerUnpublishVolumeResponse:
        """As EC2 would have it, but a volume that is in use still is a failure here."""
        if (found := self._attached.pop(request.volume_id, None)) is not None:
            loop, plug = found
            plug.take()
            if not loop.release(_PATIENCE_S):
                raise NodeError(
                    Reason.TARGET_BUSY, f"{request.volume_id} is in use: {loop.holders()}"
                )
        return controller_pb2.ControllerUnpublishVolumeResponse()

    async def grow(
        self, request: controller_pb2.ControllerExpandVolumeRequest
    ) -> controller_pb2.ControllerExpandVolumeResponse:
        size_bytes = request.capacity_range.required_bytes
        os.truncate(self._file(request.volume_id), size_bytes)
        if (found := self._attached.get(request.volume_id)) is not None:
            found[0].grow()
        return controller_pb2.ControllerExpandVolumeResponse(
            capacity_bytes=size_bytes, node_expansion_required=True
        )

    def close(self) -> list[str]:
        """Let go of what is still attached, and tell what that is."""
        left = sorted(self._attached)
        for loop, plug in self._attached.values():
            plug.take()
            loop.release(0.0)
        return left

    def _file(self, volume_id: str) -> Path:
        return self._files / volume_id


class PassingOn(grpc.GenericRpcHandler):
    """Hands all calls of Identity and Node on to the node plugin."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        method = handler_call_details.method
        if not method.startswith(_PASSED_ON):
            return None
        return grpc.unary_unary_rpc_method_handler(self._through(method))

    def _through(self, method: str) -> Callable[..., Awaitable[bytes]]:
        async def pass_on(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            ask: Any = self._channel.unary_unary(method)
            try:
                reply: bytes = await ask(request, timeout=context.time_remaining())
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")
            return _with_a_controller(reply) if method == _CAPABILITIES else reply

        return pass_on


def _with_a_controller(reply: bytes) -> bytes:
    can = csi_pb2.PluginCapability
    whole = csi_pb2.GetPluginCapabilitiesResponse.FromString(reply)
    whole.capabilities.append(can(service=can.Service(type=can.Service.CONTROLLER_SERVICE)))
    return whole.SerializeToString()
