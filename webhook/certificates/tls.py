"""The server's side of TLS: certificates come from memory, and are swapped between two handshakes.

A context is never changed once it serves. Measured on CPython 3.11: a ``load_cert_chain`` that
fails on a live context spoils all its later handshakes, and one of another kind of key leaves the
old certificate in use. So each certificate gets a context of its own, made and tried aside, and the
one that listens hands every new connection to the latest. Open connections keep theirs.
"""

import hmac
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.model.errors import Reason, StorageError


@dataclass(frozen=True, slots=True)
class Callers:
    """Who may ask: by default anybody who reaches the port, as API servers show nothing.

    Attributes:
        authority: PEM; whoever has no certificate that it signed fails in the handshake. "" for
            none needed.
        names: of which the caller's certificate must have one, as common name or DNS name; empty
            for any.
        token: what a caller has to send as its bearer token; "" for none needed.
    """

    authority: str = ""
    names: frozenset[str] = frozenset()
    token: str = field(default="", repr=False)

    def problem(self, certificate: Mapping[str, Any] | None, authorization: str) -> str:
        """Why a caller is refused, "" if it is not.

        Args:
            certificate: the caller's, as ``getpeercert`` gives it.
            authorization: the header.
        """
        if self.authority and self.names and not self.names & _names_in(certificate or {}):
            return "the name in your client certificate is not one that may ask here"
        wanted = f"Bearer {self.token}".encode()
        if self.token and not hmac.compare_digest(authorization.encode(errors="replace"), wanted):
            return "only who has the bearer token may ask here"
        return ""


class Contexts:
    """The context to listen with, and the certificate that it serves at the moment.

    Args:
        callers: who may finish a handshake.

    Attributes:
        front: for ``asyncio``'s ``ssl`` argument. Before the first ``load`` it refuses handshakes.

    Raises:
        StorageError: CERTIFICATE_UNUSABLE; the callers' authority is no certificate.
    """

    def __init__(self, callers: Callers | None = None) -> None:
        self._current: ssl.SSLContext | None = None
        self._authority = callers.authority if callers is not None else ""
        self.front = self._server_side()
        # Called for every handshake, with a name or without (measured: a URL with an IP address).
        self.front.sni_callback = self._choose

    def load(self, chain_pem: bytes, key_pem: bytes) -> None:
        """Serve this certificate from the next handshake on.

        Args:
            chain_pem: the certificate, and the intermediate ones if there are any.
            key_pem: its private key, without a password.

        Raises:
            StorageError: CERTIFICATE_UNUSABLE; the one before goes on being served.
        """
        context = self._server_side()
        # In memory only: load_cert_chain knows nothing but files, so it gets one without a disk.
        fd = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            with os.fdopen(fd, "wb", closefd=False) as file:
                file.write(key_pem.rstrip() + b"\n" + chain_pem)
            # Without a password OpenSSL would ask the terminal for one, and wait.
            context.load_cert_chain(f"/proc/self/fd/{fd}", password=lambda: "")
        except (ssl.SSLError, OSError, ValueError) as error:
            message = f"the TLS certificate cannot be loaded: {error}"
            raise StorageError(Reason.CERTIFICATE_UNUSABLE, message) from error
        finally:
            os.close(fd)
        self._current = context

    def _choose(
        self, connection: ssl.SSLObject, _name: str | None, _front: ssl.SSLContext
    ) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None

    def _server_side(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # A resumed session shows no certificate: whoever trusts only the new one must get it.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        if self._authority:
            # In both contexts: OpenSSL takes the mode from the front's, the authority from this.
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(cadata=self._authority)
            except (ssl.SSLError, ValueError) as error:
                message = f"the authority of callers holds no certificate: {error}"
                raise StorageError(Reason.CERTIFICATE_UNUSABLE, message) from error
        return context


def _names_in(certificate: Mapping[str, Any]) -> set[str]:
    subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
    names = {name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"}
    return names | {subject.get("commonName", "")}
