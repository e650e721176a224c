"""A quiet minute of all that is installed: two controllers, of which one waits, and the webhook.

Each has a token of its own, by which the audit log tells their requests apart.
"""

import base64
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from provisioner.sandbox.control_plane import ControlPlane
from tests.bench import processes, world
from tests.bench.api_traffic import came_since, counted, received

LEADER, STANDBY, WEBHOOK = "controller that leads", "controller that waits", "webhook replica"
INSTALLED = {LEADER: 1, STANDBY: 1, WEBHOOK: 2}


@dataclass(frozen=True, slots=True)
class Minute:
    """What one process cost.

    Attributes:
        who: of ``INSTALLED``.
        received_mib: at least, from the API server; None where ``ss`` cannot tell.
        requests: to the API server, by verb and resource.
        cpu_s: its own.
        rest_mib: resident at the end.
    """

    who: str
    received_mib: float | None
    requests: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0
    rest_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class Account:
    """A token of the product's account, and the kubeconfig of who has it."""

    kubeconfig: Path
    token_id: str

    @classmethod
    async def another(cls, plane: ControlPlane) -> "Account":
        """One that nobody else has."""
        token = await plane.service_account_token(*world.ACCOUNT)
        return cls(plane.kubeconfig_for(token), token_id(token))


class _Claims(msgspec.Struct):
    jti: str


def token_id(token: str) -> str:
    """The id that the audit log has of a service account's token (a JWT)."""
    payload = token.split(".")[1]
    padded = payload + "=" * (-len(payload) % 4)
    return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims).jti


class Watched:
    """One process, from now on."""

    def __init__(self, who: str, pid: int, account: Account, port: int) -> None:
        self._who, self._pid, self._account, self._port = who, pid, account, port
        self._cpu_s, self._from_s = processes.cpu_s(pid), time.time()
        self._received = received(pid, port)

    def until_now(self) -> Callable[[bytes], Minute]:
        """What it has cost, once the audit log is given."""
        until_s, cpu_s = time.time(), processes.cpu_s(self._pid) - self._cpu_s
        rest_mib, _ = processes.memory_mib(self._pid)
        mib = None
        if self._received is not None:
            mib = came_since(self._received, received(self._pid, self._port) or {}) / 2**20

        def with_log(log: bytes) -> Minute:
            asked = counted(log, self._from_s, until_s, self._account.token_id)
            return Minute(self._who, mib, asked, cpu_s, rest_mib)

        return with_log


def markdown(minutes: Sequence[Minute]) -> str:
    """A row for each process, and one for the installed number of each."""
    lines = [
        "### A quiet minute of all that is installed",
        "",
        "| who | received, MiB | requests to the API server | CPU, s | MiB |",
        "|---|--:|---|--:|--:|",
    ]
    for each in minutes:
        kinds = ", ".join(f"{what} {n}" for what, n in each.requests.most_common())
        asked = f"{each.requests.total()}: {kinds}" if kinds else "0"
        lines.append(_row(each.who, each.received_mib, asked, each.cpu_s, each.rest_mib))
    lines.append(_row(*_sum(minutes)))
    return "\n".join(lines)


def _sum(minutes: Sequence[Minute]) -> tuple[str, float | None, str, float, float]:
    of = [(INSTALLED[each.who], each) for each in minutes]
    known = [(n, each.received_mib) for n, each in of if each.received_mib is not None]
    return (
        "**all: 2 controllers, 2 webhook replicas**",
        sum(n * mib for n, mib in known) if len(known) == len(of) else None,
        f"{sum(n * each.requests.total() for n, each in of)}",
        sum(n * each.cpu_s for n, each in of),
        sum(n * each.rest_mib for n, each in of),
    )


def _row(who: str, mib: float | None, asked: str, cpu_s: float, rest_mib: float) -> str:
    got = "" if mib is None else f"{mib:.1f}"
    return f"| {who} | {got} | {asked} | {cpu_s:.1f} | {rest_mib:.0f} |"
