"""The kubelet's side of gRPC on a unix socket, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.message import Message

from provisioner.node.csi.wire import csi_pb2, registration_pb2

A = TypeVar("A", bound=Message)
_IDENTITY = {"GetPluginInfo", "GetPluginCapabilities", "Probe"}
_REGISTRATION = {"GetInfo", "NotifyRegistrationStatus"}
_TIMEOUT_S = 10.0


class Caller:
    """Calls methods by their names, as kubelet does."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def __call__(self, method: str, /, *, timeout_s: Any = _TIMEOUT_S, **fields: Any) -> Any:
        """One call; the request's fields by their names."""
        pb: Any = registration_pb2 if method in _REGISTRATION else csi_pb2
        service = pb.DESCRIPTOR.services_by_name[
            "Registration"
            if method in _REGISTRATION
            else "Identity"
            if method in _IDENTITY
            else "Node"
        ]
        described = service.methods_by_name[method]
        asks, gives = (getattr(pb, t.name) for t in (described.input_type, described.output_type))
        call = self._channel.unary_unary(
            f"/{service.full_name}/{method}",
            request_serializer=asks.SerializeToString,
            response_deserializer=gives.FromString,
        )
        return await call(asks(**fields), timeout=timeout_s)

    async def failing(self, method: str, /, **fields: Any) -> tuple[grpc.StatusCode, str]:
        """The code and the sentence with which a call ends."""
        try:
            reply = await self(method, **fields)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        raise AssertionError(f"{method} was answered: {reply}")


@asynccontextmanager
async def calling(path: Path) -> AsyncIterator[Caller]:
    """A connection of its own, with no memory of an earlier one's failures."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"unix:{path}", options=options) as channel:
        yield Caller(channel)
