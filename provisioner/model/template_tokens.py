"""Templates of tags, cut into text and actions: the outer half of Go's text/template.

``{{`` opens an action, ``}}`` ends it; ``{{- `` and `` -}}`` eat the white space beside them, and
``{{/* … */}}`` is a comment. Source: Go 1.26 text/template, "Text and spaces", "Actions".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from provisioner.model.refusal import AtExecutionError, RefusedHereError

_SPACE = " \t\r\n"
_OPENING = re.compile(r"\{\{(?:-(?=[ \t\r\n]))?")
_COMMENT = re.compile(r"[ \t\r\n]*/\*.*?\*/(?P<trims>[ \t\r\n]+-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<SPACE>[ \t\r\n]+)
    |(?P<END>(?:(?<=[ \t\r\n])-)?\}\})
    |(?P<FIELD>\.[A-Za-z_][A-Za-z_0-9]*)
    |(?P<NUMBER>[+-]?[0-9]+(?![\w.]))
    |(?P<STRING>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
    |(?P<NAME>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<OPEN>\()|(?P<CLOSE>\))|(?P<PIPE>\|)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"\\(?:(?P<one>[abfnrtv\\\"])|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})"
    r"|U(?P<U>[0-9a-fA-F]{8})|(?P<octal>[0-7]{3})|(?P<other>.))",
    re.DOTALL,
)
_ESCAPED = dict(zip('abfnrtv\\"', '\a\b\f\n\r\t\v\\"', strict=True))
_MOST_DIGITS = 18  # fewer than 64 bits


class Kind(Enum):
    """What a token within an action is; a FIELD is without its dot, a STRING without quotes."""

    FIELD = "FIELD"
    NUMBER = "NUMBER"
    STRING = "STRING"
    NAME = "NAME"
    OPEN = "OPEN"
    CLOSE = "CLOSE"
    PIPE = "PIPE"


@dataclass(frozen=True, slots=True)
class Token:
    """One word of an action."""

    kind: Kind
    text: str


def cut(template: str) -> Iterator[str | list[Token]]:
    """Texts, and the tokens of actions between them; empty texts and comments are left out.

    Raises:
        ValueError: one sentence that names what cannot be read.
    """
    position, trims = 0, False
    while True:
        opening = _OPENING.search(template, position)
        text = template[position : opening.start() if opening else None]
        if trims:
            text = text.lstrip(_SPACE)
        if opening is not None and opening[0].endswith("-"):
            text = text.rstrip(_SPACE)
        if text:
            yield text
        if opening is None:
            return
        comment = _COMMENT.match(template, opening.end())
        if comment is not None:
            position, trims = comment.end(), comment["trims"] is not None
            continue
        tokens, position = _action(template, opening.end())
        trims = template[position - 3] == "-"
        yield tokens


def _action(template: str, position: int) -> tuple[list[Token], int]:
    """The tokens of the action that begins here, and where it has ended."""
    tokens: list[Token] = []
    joined = False  # to the word before: Go asks for a space between two
    while True:
        found = _TOKEN.match(template, position)
        if found is None:
            raise _unreadable(template[position:])
        kind, text, position = found.lastgroup or "", found[0], found.end()
        if kind == "END":
            return tokens, position
        if joined and kind in ("FIELD", "NUMBER", "STRING", "NAME"):
            # Go reads .PVCName.Foo, and fails when it looks for a Foo.
            refused = AtExecutionError if kind == "FIELD" else ValueError
            raise refused(f"a space is missing before {text[:40]!r}")
        joined = kind in ("FIELD", "NUMBER", "STRING", "NAME", "CLOSE")
        if kind != "SPACE":
            tokens.append(_token(Kind(kind), text))


def _token(kind: Kind, text: str) -> Token:
    if kind is Kind.FIELD:
        return Token(kind, text[1:])
    if kind is Kind.NUMBER and len(text) > _MOST_DIGITS:
        raise RefusedHereError(f"{text[:40]!r} is too large a number")
    if kind is Kind.STRING and text[0] == "`":
        return Token(kind, text[1:-1].replace("\r", ""))
    if kind is Kind.STRING:
        return Token(kind, _ESCAPE.sub(_unescaped, text[1:-1]))
    return Token(kind, text)


def _unescaped(found: re.Match[str]) -> str:
    if found["one"]:
        return _ESCAPED[found["one"]]
    digits = found["x"] or found["u"] or found["U"]
    code = int(digits, 16) if digits else int(found["octal"] or "-1", 8)
    # \x and \ooo are bytes in Go: above 127 they are no character by themselves.
    most = 0x10FFFF if found["u"] or found["U"] else 0x7F
    if found["other"] or not 0 <= code <= most or 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 -- surrogates
        refused = RefusedHereError if found["x"] or found["octal"] else ValueError
        raise refused(f"{found[0]!r} in a string is no character")
    return chr(code)


def _unreadable(rest: str) -> ValueError:
    """Why the rest of a template is none; Go reads more than is read here."""
    if not rest:
        return ValueError("an action is not closed: }} is missing")
    if rest[0] in "$:=":
        return RefusedHereError("variables ($) are not supported")
    if rest[0] == "'":
        return RefusedHereError(f"{rest[:20]!r} is no string; only numbers stand in such quotes")
    if rest[0] in '"`':
        return ValueError(f"a string is not closed: {rest[:20]!r}")
    if rest[0] in "0123456789.+-" or not rest[0].isascii():
        return RefusedHereError(
            f"{rest[:20]!r} cannot be read: only whole numbers in digits are, and "
            "names of letters from a to z"
        )
    return ValueError(f"{rest[:20]!r} cannot be read")
