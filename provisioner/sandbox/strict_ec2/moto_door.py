"""The way to moto: its WSGI application, called in this process."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from html import unescape
from typing import Final

from aiohttp import web
from werkzeug.test import EnvironBuilder, run_wsgi_app

from provisioner.sandbox.strict_ec2 import motos
from provisioner.sandbox.strict_ec2.actions import carry_out
from provisioner.sandbox.strict_ec2.describe import (
    modification_counts,
    snapshot_counts,
    state_counts,
)
from provisioner.sandbox.strict_ec2.errors import Ec2Error
from provisioner.sandbox.strict_ec2.world import World

_CODE: Final = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)
_FORBIDDEN: Final = 403
_CLIENT_ERROR: Final = 400
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back to the client."""

    status: int
    content_type: str
    body: bytes


class MotoDoor:
    """Hands requests to moto and turns its crashes into what AWS would say."""

    def __init__(self) -> None:
        server = motos.werkzeug_app
        self._app = server.DomainDispatcherApplication(server.create_backend_app)

    def by_rule(
        self, world: World, account: str, action: str, flat: dict[str, str], region: str
    ) -> Reply:
        """Carry out a call by our rules, past moto's request handling."""
        status, body = carry_out(world, account, region, action, flat)
        return Reply(status, "text/xml;charset=UTF-8", body.encode())

    def enforces_iam(self) -> bool:
        """Tell whether moto checks signatures and policies (``/moto-api/reset-auth``)."""
        return bool(
            motos.ActionAuthenticatorMixin.request_count
            >= motos.settings.INITIAL_NO_AUTH_ACTION_COUNT
        )

    def answer(
        self, request: web.BaseRequest, body: bytes, *, account: str = "", ec2: bool = False
    ) -> Reply:
        """Let moto answer, for another account than the usual one if it is given."""
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP]
        os.environ["MOTO_ACCOUNT_ID"] = account or motos.ACCOUNT  # what moto looks at first
        environ = EnvironBuilder(
            method=request.method,
            path=request.path,
            query_string=request.query_string,
            base_url=f"http://{request.host}/",
            headers=headers,
            data=body,
        ).get_environ()
        try:
            chunks, status_line, reply_headers = run_wsgi_app(self._app, environ, buffered=True)
            text = b"".join(chunks)
        except Exception as error:  # moto's way to say "not implemented", among others
            return _error(Ec2Error("InternalError", f"moto: {error!r}", status=500))
        status = int(status_line.split()[0])
        content_type = reply_headers.get("Content-Type", "text/xml")
        if ec2 and status >= _CLIENT_ERROR:
            return _reworded(status, text)
        return Reply(status, content_type, text)

    def reset(self) -> None:
        """Empty every moto backend, and stop enforcing IAM."""
        motos.moto_api_backend.reset()
        motos.settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        motos.ActionAuthenticatorMixin.request_count = 0

    def states(self) -> dict[str, dict[str, int]]:
        """Count things by state over all regions in use, as ``/_control`` reports them.

        Under ``states`` volumes and attachments, ``modifications``, and ``snapshots``.
        """
        backends = [each for account in motos.ec2_backends.values() for each in account.values()]
        return {
            "states": _total(map(state_counts, backends)),
            "modifications": _total(map(modification_counts, backends)),
            "snapshots": _total(map(snapshot_counts, backends)),
        }


def _total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def _reworded(status: int, text: bytes) -> Reply:
    """Give an EC2 error in EC2's words and XML: moto's IAM speaks as other services do."""
    found = _CODE.search(text.decode(errors="replace"))
    if found is None:
        return _error(Ec2Error("InternalError", "An internal error has occurred", status=500))
    code, message = unescape(found[1]), unescape(found[2])
    if code == "AccessDenied" and status == _FORBIDDEN:
        code = "UnauthorizedOperation"
        message = f"You are not authorized to perform this operation. {message}"
    return _error(Ec2Error(code, message, status))


def _error(error: Ec2Error) -> Reply:
    return Reply(error.status, "text/xml;charset=UTF-8", error.xml().encode())
