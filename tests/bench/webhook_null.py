"""The least that a webhook can be: it reads nothing of a review but its uid, and lets it through.

What the API server and this machine take for any webhook, to be seen beside what ours takes. Only a
pod called ``APART`` is refused, by which the bench tells whether the API server asks here.

Run as ``python -m tests.bench.webhook_null PORT FILE``, the file with key and certificate as PEM.
"""

import asyncio
import re
import ssl
import sys

from tests.bench.webhook_load import HOST

APART = "apart"
_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
_UID = re.compile(rb'"uid":"([^"]+)"')
_REFUSED = f'"name":"{APART}"'.encode()
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_BODY = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{%b}}'


class Null(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._got = b""

    def data_received(self, data: bytes) -> None:
        """Answer as soon as all of a review is there."""
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or length is None or len(body) < int(length[1]):
            return
        self._got = b""
        uid = _UID.search(body)
        assert uid is not None
        allowed = b'"allowed":true'
        if _REFUSED in body:
            allowed = b'"allowed":false,"status":{"code":403}'
        answer = _BODY % (b'"uid":"%b",%b' % (uid[1], allowed))
        self._transport.write(_HEAD % len(answer) + answer)


async def _main(port: str, file: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    context.set_alpn_protocols(["http/1.1"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Null, HOST, int(port), ssl=context)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
