"""The server's side of TLS: certificates come from memory, and are swapped between two handshakes.

A context is never changed once it serves. Measured on CPython 3.11: a ``load_cert_chain`` that
fails on a live context spoils all its later handshakes, and one of another kind of key leaves the
old certificate in use. So each certificate gets a context of its own, made and tried aside, and the
one that listens hands every new connection to the latest. Open connections keep theirs.
"""

import os
import ssl

from provisioner.model.errors import Reason, StorageError


class Contexts:
    """The context to listen with, and the certificate that it serves at the moment.

    Args:
        callers_authority: PEM; a caller needs a certificate that it signed to finish a handshake.
            "" for none needed.

    Attributes:
        front: for ``asyncio``'s ``ssl`` argument. Before the first ``load`` it refuses handshakes.

    Raises:
        StorageError: CERTIFICATE_UNUSABLE; the callers' authority is no certificate.
    """

    def __init__(self, callers_authority: str = "") -> None:
        self._current: ssl.SSLContext | None = None
        self._authority = callers_authority
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
        # A resumed session shows no certificate: a client that trusts only the new one must get it.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        if self._authority:
            # In both contexts: OpenSSL takes the mode from the front's, the authority from this.
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(cadata=self._authority)
            except (ssl.SSLError, ValueError) as error:
                message = f"the CA for callers (--client-ca-file) contains no certificate: {error}"
                raise StorageError(Reason.CERTIFICATE_UNUSABLE, message) from error
        return context
