"""AWS beside the product's own calls: STS, KMS, quotas, prices, and EC2 as another identity.

boto3's own clients, in threads: a command asks each question once, and reads fields that the
product's quick reader leaves out. Retries are botocore's.
"""

import asyncio
import functools
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from provisioner.model.errors import Ec2Error, Reason

_AT_ONCE = 16
_CONNECT_S, _READ_S = 3.0, 8.0
_SESSION_NAME = "kubectl-ebs-doctor"  # in CloudTrail
_REASONS = {
    **dict.fromkeys(
        ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
        Reason.PERMISSION_DENIED,
    ),
    **dict.fromkeys(
        (
            *("ExpiredToken", "ExpiredTokenException"),
            *("InvalidClientTokenId", "UnrecognizedClientException"),
        ),
        Reason.CREDENTIALS_INVALID,
    ),
}

QUOTAS, PRICES = "service-quotas", "pricing"
# The price list is served in three Regions, for all of them. Source: AWS Billing user guide "AWS
# Price List Query API", service endpoints (read 2026-11-23).
PRICES_REGION = "us-east-1"


class Aws:
    """One identity in one Region; ``close`` it.

    Attributes:
        sent: how many calls were sent, by action.
        ahead_s: how far AWS's clock is ahead of this machine's, by service; from answers' Date.
    """

    def __init__(self, session: boto3.session.Session, region: str) -> None:
        self.region = region
        self.sent: Counter[str] = Counter()
        self.ahead_s: dict[str, float] = {}
        self._session = session
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="aws")
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()

    @classmethod
    def of_caller(cls, region: str) -> "Aws":
        """The identity that boto3 finds.

        Raises:
            Ec2Error: (INVALID_REQUEST) settings that boto3 refuses, such as an unknown profile.
        """
        try:
            return cls(boto3.session.Session(region_name=region), region)
        except BotoCoreError as failure:
            raise _translated("", failure) from failure

    def close(self) -> None:
        """Release threads; calls under way are not awaited."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(self, service: str, action: str, **params: Any) -> dict[str, Any]:
        """One call, such as ``call("ec2", "DescribeInstances", …)``.

        Raises:
            Ec2Error: refused (``code`` is AWS's), or not answered.
        """
        self.sent[action] += 1
        (answer,) = await self._in_thread(service, action, params, is_paged=False)
        return answer

    async def read_all(self, service: str, action: str, key: str, **params: Any) -> list[Any]:
        """All pages of one question, the lists under ``key`` put together.

        Raises:
            Ec2Error: as ``call``; there is no partial answer.
        """
        self.sent[action] += 1
        pages = await self._in_thread(service, action, params, is_paged=True)
        self.sent[action] += len(pages) - 1
        return [each for page in pages for each in page[key]]

    async def assume(self, role: str) -> "Aws":
        """Another identity: a role that this one may assume.

        Raises:
            Ec2Error: it may not.
        """
        answer = await self.call("sts", "AssumeRole", RoleArn=role, RoleSessionName=_SESSION_NAME)
        return self._with(answer["Credentials"])

    async def assume_by_token(self, role: str, token: str) -> "Aws":
        """The identity of a ServiceAccount: a role for the bearer of its token.

        Raises:
            Ec2Error: STS does not accept it.
        """
        answer = await self.call(
            *("sts", "AssumeRoleWithWebIdentity"),
            RoleArn=role,
            RoleSessionName=_SESSION_NAME,
            WebIdentityToken=token,
        )
        return self._with(answer["Credentials"])

    def _with(self, keys: Mapping[str, str]) -> "Aws":
        session = boto3.session.Session(
            keys["AccessKeyId"],
            keys["SecretAccessKey"],
            keys["SessionToken"],
            region_name=self.region,
        )
        made = Aws(session, self.region)
        made.sent = self.sent
        return made

    async def _in_thread(
        self, service: str, action: str, params: Mapping[str, Any], *, is_paged: bool
    ) -> list[dict[str, Any]]:
        send = functools.partial(self._send, service, action, params, is_paged=is_paged)
        return await asyncio.get_running_loop().run_in_executor(self._threads, send)

    def _send(
        self, service: str, action: str, params: Mapping[str, Any], *, is_paged: bool
    ) -> list[dict[str, Any]]:
        """The answer, or all pages of it."""
        try:
            client = self._client(service, unsigned=action == "AssumeRoleWithWebIdentity")
            name = _snake(client, action)
            if is_paged:
                answers = list(client.get_paginator(name).paginate(**params))
            else:
                answers = [getattr(client, name)(**params)]
        except ClientError as failure:
            self._hear(service, failure.response)
            raise _translated(action, failure) from failure
        except (BotoCoreError, ValueError) as failure:
            raise _translated(action, failure) from failure
        for each in answers:
            self._hear(service, each)
        return answers

    def _client(self, service: str, *, unsigned: bool) -> Any:
        """A client; sessions are not made for several threads, clients are (boto3 guide)."""
        with self._making:
            return self._one_client(service, unsigned=unsigned)

    def _one_client(self, service: str, *, unsigned: bool) -> Any:
        key = f"{service} unsigned" if unsigned else service
        made = self._clients.get(key)
        if made is None:
            config = Config(
                connect_timeout=_CONNECT_S,
                read_timeout=_READ_S,
                max_pool_connections=_AT_ONCE,
                retries={"mode": "standard", "total_max_attempts": 2},
                signature_version=UNSIGNED if unsigned else None,
            )
            # AWS_EC2_ENDPOINT as the product and aws-ebs-csi-driver have it.
            endpoint = os.environ.get("AWS_EC2_ENDPOINT") if service == "ec2" else None
            made = self._session.client(
                service, region_name=self.region, endpoint_url=endpoint or None, config=config
            )
            self._clients[key] = made
        return made

    def _hear(self, service: str, answer: Mapping[str, Any]) -> None:
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        ahead_s = ahead_of(date, time.time())
        if ahead_s is not None:
            self.ahead_s[service] = ahead_s


def ahead_of(date: str, now_s: float) -> float | None:
    """Seconds by which a Date header is ahead of a time; None if it cannot be read.

    A header has whole seconds, so half a second is added.
    """
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - now_s
    except (ValueError, TypeError):
        return None


def _snake(client: Any, action: str) -> str:
    names: Mapping[str, str] = client.meta.method_to_api_mapping
    return next(name for name, api in names.items() if api == action)


def _translated(action: str, failure: Exception) -> Ec2Error:
    if isinstance(failure, ClientError):
        error = failure.response.get("Error", {})
        code = str(error.get("Code", ""))
        message = str(error.get("Message", ""))
        reason = _REASONS.get(code, Reason.INVALID_REQUEST)
        return Ec2Error(reason, f"{code}: {message}", action=action, code=code)
    if isinstance(failure, NoCredentialsError):
        return Ec2Error(Reason.CREDENTIALS_INVALID, "no AWS credentials", action=action)
    return Ec2Error(Reason.UNREACHABLE, " ".join(str(failure).split()), action=action)
