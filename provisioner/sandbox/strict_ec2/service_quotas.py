"""Service Quotas' list for EBS: AWS's defaults, and what ``/_control`` has set for this account.

The protocol is JSON 1.1, the action in ``X-Amz-Target``.
Source: Service Quotas API reference, ListServiceQuotas and ListAWSDefaultServiceQuotas; AWS General
Reference, "Amazon EBS endpoints and quotas" (read 2026-11-23).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from provisioner.model.quota import GIB_PER_TIB, IOPS_CODES, STORAGE_CODES, name_of

TARGET: Final = "ServiceQuotasV20190624."
_TIB: Final = {"io2": 20.0}
_USUAL_TIB: Final = 50.0
_IOPS: Final = {"io1": 300_000.0, "io2": 100_000.0}
_IOPS_CODE: Final = "MaxIOPSLimitExceeded"


def answer(target: str, body: bytes, quotas: Mapping[str, Any], region: str) -> tuple[int, bytes]:
    """Answer one call; HTTP status and body.

    Args:
        target: of the header, such as "ServiceQuotasV20190624.ListServiceQuotas".
        body: of the request.
        quotas: the setting of ``/_control``.
        region: for ARNs.
    """
    action = target.removeprefix(TARGET)
    wanted = json.loads(body or b"{}")
    if action not in {"ListServiceQuotas", "ListAWSDefaultServiceQuotas"}:
        return 400, _refusal("UnknownOperationException", action)
    if wanted.get("ServiceCode") != "ebs":
        return 400, _refusal("NoSuchResourceException", "The service does not exist.")
    applied = quotas if action == "ListServiceQuotas" else {}
    return 200, json.dumps({"Quotas": list(_quotas(applied, region))}).encode()


def _quotas(quotas: Mapping[str, Any], region: str) -> Iterator[dict[str, Any]]:
    for kind, code in STORAGE_CODES.items():
        gib = quotas.get("gib", {}).get(kind)
        value = _TIB.get(kind, _USUAL_TIB) if gib is None else gib / GIB_PER_TIB
        name = name_of("VolumeLimitExceeded", "storage", kind) or ""
        yield _quota(code, name, value, region)
    for kind, code in IOPS_CODES.items():
        value = float(quotas.get("iops", {}).get(kind, _IOPS[kind]))
        yield _quota(code, name_of(_IOPS_CODE, "", kind) or "", value, region)


def _quota(code: str, name: str, value: float, region: str) -> dict[str, Any]:
    return {
        "ServiceCode": "ebs",
        "ServiceName": "Amazon Elastic Block Store (Amazon EBS)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:123456789012:ebs/{code}",
        "QuotaCode": code,
        "QuotaName": name.partition(f" ({code})")[0],
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }


def _refusal(code: str, message: str) -> bytes:
    return json.dumps({"__type": code, "message": message}).encode()
