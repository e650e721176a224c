"""Decide as whom requests are sent: kubectl's impersonation, which ``kubernetes.aio`` leaves out.

The API server asks whether one may impersonate, and then goes by the rights of the other one.
Source: client-go tools/clientcmd (AuthInfo, ClientConfig, validateAuthInfo) and
transport/round_trippers.go (read 2026-11-28).
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What a header's name can have; Go's headerKeyEscape writes everything else as %XX.
_PLAIN = frozenset(string.ascii_letters + string.digits + "!#$&'*+-.^_`|~")


@dataclass(frozen=True, slots=True)
class Impersonation:
    """As whom requests are sent; without ``user``, as oneself. ``extra``: values by key."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def over(self, other: "Impersonation") -> "Impersonation":
        """What is said here, and the rest as the other says: so kubectl's options go before."""
        return Impersonation(
            self.user or other.user,
            self.uid or other.uid,
            self.groups or other.groups,
            self.extra or other.extra,
        )

    def headers(self) -> list[tuple[str, str]]:
        """The headers of each request; one of them may be there several times.

        Raises:
            ValueError: nobody can be impersonated so; one clause.
        """
        if not self.user and (self.uid or self.groups or self.extra):
            raise ValueError(
                "a uid, groups or extra of a user to impersonate, and no user, are set"
            )
        found = [("Impersonate-User", self.user)] if self.user else []
        found += [("Impersonate-Uid", self.uid)] if self.uid else []
        found += [("Impersonate-Group", each) for each in self.groups]
        for key, values in self.extra:
            found += [(f"Impersonate-Extra-{_escaped(key)}", each) for each in values]
        for name, value in found:
            if not value.isprintable():
                raise ValueError(f"{name} {value!r} has characters that no header can have")
        return found


NOBODY_ELSE = Impersonation()


def of_user(user: Mapping[str, Any]) -> Impersonation:
    """Whom a user of a kubeconfig impersonates.

    Raises:
        ValueError: it is not said as kubectl understands it; one clause.
    """
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, Mapping):
        raise ValueError("as-user-extra is not a mapping of lists")  # noqa: TRY004 -- of a file
    return Impersonation(
        _text("as", user.get("as")),
        _text("as-uid", user.get("as-uid")),
        _texts("as-groups", user.get("as-groups")),
        tuple((_text("as-user-extra", k), _texts("as-user-extra", v)) for k, v in extra.items()),
    )


def _text(what: str, value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{what} {value!r} is not a text: write it in quotes")
    return value or ""


def _texts(what: str, value: Any) -> tuple[str, ...]:
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{what} is not a list of texts")
    return tuple(_text(what, each) for each in value or ())


def _escaped(key: str) -> str:
    return "".join(chr(b) if chr(b) in _PLAIN else f"%{b:02X}" for b in key.encode())
