"""AWS services besides EC2 that a command reads: Service Quotas, STS, the price list.

Their answers are short and rare, so boto3 is used as it is, in a thread.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from provisioner.model.errors import Reason, StorageError

A = TypeVar("A")

QUOTAS, PRICES, IDENTITY = "service-quotas", "pricing", "sts"
# The price list is served in three Regions, for all of them. Source: AWS Billing user guide "AWS
# Price List Query API", service endpoints (read 2026-11-23).
PRICES_REGION = "us-east-1"
_CONFIG = Config(
    connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 3, "mode": "standard"}
)
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)
_ABSENT = frozenset({"NoSuchResourceException"})


async def read_all(service: str, region: str, operation: str, key: str, **params: Any) -> list[Any]:
    """All pages of one question, the lists under ``key`` put together.

    Args:
        service: as boto3 names it: ``QUOTAS``, ``PRICES``, ``IDENTITY``.
        region: that is asked.
        operation: a method of boto3's client that has pages, such as "list_service_quotas".
        key: of the answer's list.
        params: of the operation.

    Raises:
        StorageError: AWS refuses or does not answer; one sentence.
    """

    def ask() -> list[Any]:
        pages = _client(service, region).get_paginator(operation).paginate(**params)
        return [each for page in pages for each in page[key]]

    return await _in_thread(ask, f"{service} {operation}")


async def read_one(service: str, region: str, operation: str, **params: Any) -> Mapping[str, Any]:
    """One answer, as boto3 gives it.

    Raises:
        StorageError: as ``read_all``; OBJECT_NOT_FOUND for what the service does not know.
    """

    def ask() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = getattr(_client(service, region), operation)(**params)
        return answer

    return await _in_thread(ask, f"{service} {operation}")


def _client(service: str, region: str) -> Any:
    return boto3.session.Session().client(service, region_name=region, config=_CONFIG)


async def _in_thread(ask: Callable[[], A], what: str) -> A:
    try:
        return await asyncio.to_thread(ask)
    except ClientError as error:
        raise _refused(error, what) from error
    except NoCredentialsError as error:
        raise StorageError(Reason.CREDENTIALS_INVALID, f"{what}: no AWS credentials") from error
    except (BotoCoreError, ValueError) as error:
        raise StorageError(Reason.UNREACHABLE, f"{what}: {error}") from error


def _refused(error: ClientError, what: str) -> StorageError:
    told = error.response.get("Error", {})
    code, text = str(told.get("Code", "")), str(told.get("Message", ""))
    reason = Reason.INVALID_REQUEST
    if code in _DENIED:
        reason = Reason.PERMISSION_DENIED
    elif code in _CREDENTIALS:
        reason = Reason.CREDENTIALS_INVALID
    elif code in _ABSENT:
        reason = Reason.OBJECT_NOT_FOUND
    return StorageError(reason, f"{what}: {code}: {text}" if text else f"{what}: {code}")
