"""The way to EC2 for probes: boto3 with nothing of ours between, so that a reply is EC2's own.

Neither validation nor retries of boto3: a probe sends what EC2 should refuse, and sees each reply.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from provisioner.conformance.probe import CannotRunError, RefusedError
from provisioner.ec2.botocore_client import CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from provisioner.ec2.error_codes import THROTTLES, classify
from provisioner.model.backoff import Backoff
from provisioner.model.errors import Outcome, Reason
from provisioner.version import our_version

T = TypeVar("T")

_AT_ONCE = 40  # so that probes of quotas are faster than their refill
_THROTTLED_TRIES = 20
_READ_TRIES = 3
_PAUSES = Backoff(0.3, 5.0)
_NO_SUCH_ACTION = frozenset({"InvalidAction", "NotImplemented", "UnknownOperationException"})
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)


class DeniedError(CannotRunError):
    """The credentials may not do this.

    Attributes:
        action: the EC2 action.
    """

    def __init__(self, action: str, code: str) -> None:
        super().__init__(f"ec2:{action} is not allowed to these credentials ({code})")
        self.action = action


class NoEc2Error(CannotRunError):
    """There is no EC2 behind the endpoint, or nothing that lets us in: no probe can run."""


class UnansweredError(CannotRunError):
    """A call had no clear reply: it may have been carried out."""


class Ec2:
    """A client for one Region of one endpoint."""

    def __init__(self, client: Any, endpoint: str) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(_AT_ONCE, "ec2")
        self._work: set[asyncio.Task[Any]] = set()
        self.endpoint = endpoint
        self.region = str(client.meta.region_name)

    @classmethod
    def connect(cls, *, region: str | None, endpoint: str | None) -> "Ec2":
        """A client; nothing is sent yet.

        Raises:
            NoEc2Error: no region, or settings that boto3 refuses.
        """
        try:
            client = boto3.session.Session().client(
                "ec2",
                region_name=region,
                endpoint_url=endpoint,
                config=Config(
                    parameter_validation=False,
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"total_max_attempts": 1},
                    max_pool_connections=_AT_ONCE,
                    user_agent_extra=f"ebs-provisioner-conformance/{our_version()}",
                ),
            )
        except (BotoCoreError, ValueError) as failure:
            hint = "; give --region or set AWS_REGION" if region is None else ""
            raise NoEc2Error(f"AWS settings: {failure}".rstrip(".") + hint) from failure
        return cls(client, str(client.meta.endpoint_url))

    async def call(
        self, operation: str, params: Mapping[str, Any], *, again: bool = True
    ) -> dict[str, Any]:
        """Send one call and return its reply; a read is repeated if no reply comes.

        Args:
            operation: boto3's name of the call.
            params: not validated.
            again: repeat a throttled call; else it is refused with its code.

        Raises:
            RefusedError: EC2 refused it.
            CannotRunError: what its subclasses say.
        """
        throttled = unanswered = 0
        while True:
            try:
                return await self.undisturbed(self._in_thread(operation, params))
            except RefusedError as refused:
                if refused.code not in THROTTLES or not again or throttled == _THROTTLED_TRIES:
                    raise
                throttled += 1
            except UnansweredError:
                unanswered += 1
                if not operation.startswith("describe_") or unanswered == _READ_TRIES:
                    raise
            await asyncio.sleep(_PAUSES.pause_s(throttled + unanswered))

    async def undisturbed(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work to its end, even if its caller is cancelled meanwhile; see ``settle``."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for all calls that are under way, some of whose callers have gone."""
        while self._work:
            await asyncio.wait(self._work)

    async def close(self) -> None:
        """Wait for all calls, and close the connections."""
        await self.settle()
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may have gone

    async def _in_thread(self, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        action = self._client.meta.method_to_api_mapping.get(operation)
        if action is None:
            raise CannotRunError(f"this version of boto3 has no {operation}: install a newer one")
        loop = asyncio.get_running_loop()
        send = getattr(self._client, operation)
        try:
            reply: dict[str, Any] = await loop.run_in_executor(
                self._threads, lambda: send(**params)
            )
        except (BotoCoreError, ClientError, OSError, ResponseParserError) as failure:
            raise _ours(failure, str(action)) from failure
        if not reply.get("ResponseMetadata", {}).get("RequestId"):
            raise UnansweredError(f"{action}: the reply is not EC2's: it has no request id")
        return reply


def region_told() -> str | None:
    """The Region of the environment or of AWS's configuration file."""
    told = botocore.session.Session().get_config_variable("region")
    return str(told) if told else None


def _ours(failure: Exception, action: str) -> Exception:
    if isinstance(failure, ClientError):
        return _refused(failure, action)
    if isinstance(failure, _NO_CREDENTIALS):
        return NoEc2Error(
            f"no AWS credentials ({failure}): set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    if isinstance(failure, ResponseParserError):
        return UnansweredError(f"{action}: what answers is no EC2: its reply is not EC2's XML")
    if isinstance(failure, (EndpointConnectionError, ConnectTimeoutError)):
        return NoEc2Error(f"{action}: the endpoint cannot be reached: {failure}")
    if isinstance(failure, SSLError):
        return NoEc2Error(f"{action}: there is no TLS connection to the endpoint: {failure}")
    return UnansweredError(f"{action}: no reply: {failure}")


def _refused(failure: ClientError, action: str) -> Exception:
    said: Mapping[str, Any] = failure.response.get("Error") or {}
    metadata: Mapping[str, Any] = failure.response.get("ResponseMetadata") or {}
    code, text = str(said.get("Code") or ""), str(said.get("Message") or "")
    status = int(metadata.get("HTTPStatusCode") or 0)
    if not code or code == str(status):
        return UnansweredError(f"{action}: what answers is no EC2: HTTP {status} without a code")
    if code in _NO_SUCH_ACTION:
        return CannotRunError(f"the endpoint has no action {action} ({code})")
    reason, outcome = classify(code, text, status)
    if reason is Reason.PERMISSION_DENIED:
        return DeniedError(action, code)
    if reason is Reason.CREDENTIALS_INVALID:
        return NoEc2Error(f"{action}: EC2 does not accept the credentials: {code}: {text}")
    if outcome is Outcome.UNKNOWN:
        return UnansweredError(f"{action}: no clear reply: {code}: {text}")
    return RefusedError(code, text)
