"""What a process asks the API server and gets from it: by the kernel's counts and the audit log."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

_CREDENTIAL = "authentication.kubernetes.io/credential-id"  # the API server's, of each token
_RECEIVED = re.compile(r"bytes_received:(\d+)")


def received(pid: int, port: int) -> dict[str, int] | None:
    """Bytes that came over each TCP connection that a process has now; None without ``ss``."""
    if shutil.which("ss") is None:
        return None
    asked = ["ss", "-tinpHO", "dport", "=", f":{port}"]
    lines = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()
    return received_by(line for line in lines if f"pid={pid}," in line)


def received_by(lines: Iterable[str]) -> dict[str, int]:
    """The same from lines of ``ss``, by the connection's own end."""
    return {line.split()[3]: sum(map(int, _RECEIVED.findall(line))) for line in lines}


def came_since(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Bytes that came at least: what came over a connection that has ended meanwhile is unknown."""
    return sum(
        count - (before.get(each, 0) if count >= before.get(each, 0) else 0)
        for each, count in now.items()
    )


class _Object(msgspec.Struct):
    resource: str = ""


class _User(msgspec.Struct):
    extra: dict[str, list[str]] = msgspec.field(default_factory=dict)


class _Event(msgspec.Struct, rename="camel"):
    audit_id: str = msgspec.field(name="auditID")
    verb: str
    request_received_timestamp: datetime
    object_ref: _Object = msgspec.field(default_factory=_Object)
    user: _User = msgspec.field(default_factory=_User)


def counted(log: bytes, from_s: float, until_s: float, token_id: str = "") -> Counter[str]:
    """Requests of an audit log that came within a time, by verb and resource.

    Args:
        log: one event a line.
        from_s: seconds since the epoch, and ``until_s``.
        until_s: not any more.
        token_id: of the token they came with; all without.
    """
    seen: dict[str, str] = {}
    decode = msgspec.json.Decoder(_Event).decode
    for event in map(decode, log.splitlines()):
        is_theirs = not token_id or f"JTI={token_id}" in event.user.extra.get(_CREDENTIAL, ())
        if is_theirs and from_s <= event.request_received_timestamp.timestamp() < until_s:
            seen[event.audit_id] = f"{event.verb} {event.object_ref.resource}".rstrip()
    return Counter(seen.values())
