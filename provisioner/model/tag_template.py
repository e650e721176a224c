"""Tags whose values name the claim: ``team={{ .PVCNamespace | field "-" 0 | toUpper }}``.

Those of a snapshot name the VolumeSnapshot instead.

The values are templates of Go's text/template in aws-ebs-csi-driver; here the part of that
language that makes sense in a tag: text, ``.PVCNamespace``, ``.PVCName``, ``.PVName``, strings,
numbers, pipes, brackets, ``if``/``else``/``end`` and functions. What is left out (variables,
``range``, ``with``, ``define`` …) is refused by name. What cannot work is refused when the
template is read, as far as that can be seen without a claim.
Source: aws-ebs-csi-driver v1.64 docs/tagging.md and pkg/util/template (read 2026-11-21).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner.model import template_functions as functions
from provisioner.model.refusal import AtExecutionError, RefusedHereError, retold
from provisioner.model.template_tokens import Kind, Token, cut
from provisioner.model.template_tree import (
    Call,
    Choice,
    Expression,
    Field,
    Literal,
    Names,
    Part,
    rendered,
)

__all__ = ["OF_CLAIM", "OF_SNAPSHOT", "Names", "TagTemplate", "parse"]

_DEEPEST = 40
_CONDITION = re.compile(r"\b(?:if|and|or)\b")
_FOREIGN = ("range", "with", "define", "block", "template", "break", "continue", "nil")


# What a template can name, and which of ``Names`` that is.
OF_CLAIM = {
    "PVCNamespace": "claim_namespace",
    "PVCName": "claim_name",
    "PVName": "persistent_volume_name",
}
OF_SNAPSHOT = {
    "VolumeSnapshotNamespace": "snapshot_namespace",
    "VolumeSnapshotName": "snapshot_name",
    "VolumeSnapshotContentName": "content_name",
}


@dataclass(frozen=True, slots=True)
class TagTemplate:
    """One tag: its key as it is, its value as a template; ``text`` is what it was read from."""

    key: str
    text: str
    parts: tuple[Part, ...]

    @property
    def is_constant(self) -> bool:
        """Whether every volume gets the same value, and no claim can make it fail."""
        return all(isinstance(part, str) for part in self.parts)

    def render(self, names: Names) -> str:
        """The tag's value for one volume.

        Raises:
            ValueError: one sentence: what in the template cannot be worked out.
        """
        return "".join(rendered(self.parts, names))


def parse(text: str, fields: Mapping[str, str] = OF_CLAIM) -> TagTemplate:
    """Read ``key=value``; the key ends at the first ``=``, ``fields`` are what it can name.

    Raises:
        ValueError: one sentence that names what is wrong.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text[:100]!r} is not of the form key=value")
    try:
        return TagTemplate(key, value, _Reader(value, fields).all())
    except ValueError as error:
        told = f"the template {value[:100]!r} of tag {key[:40]!r}: {error}"
        if isinstance(error, AtExecutionError) and _CONDITION.search(value):
            raise RefusedHereError(told) from error  # Go may never come to it
        raise retold(error, told) from error


class _Reader:
    """Reads the pieces of one template, from the first to the last."""

    def __init__(self, template: str, fields: Mapping[str, str]) -> None:
        self._pieces = cut(template)
        self._fields = fields

    def all(self) -> tuple[Part, ...]:
        parts, end = self._block(0)
        if end is not None:
            raise ValueError(f"{{{{{end[0].text}}}}} without an if before it")
        return parts

    def _block(self, depth: int) -> tuple[tuple[Part, ...], list[Token] | None]:
        """The parts up to an ``else`` or ``end``, and that; None at the end of the template."""
        if depth > _DEEPEST:
            raise RefusedHereError(f"if is nested more than {_DEEPEST} times")
        parts: list[Part] = []
        for piece in self._pieces:
            if isinstance(piece, str):
                parts.append(piece)
                continue
            word = piece[0].text if piece and piece[0].kind is Kind.NAME else ""
            if word in ("else", "end"):
                return tuple(parts), piece
            if word == "if":
                parts.append(self._choice(piece[1:], depth + 1))
            elif word in _FOREIGN:
                raise RefusedHereError(f"{word} is not supported in a tag")
            else:
                parts.append(_expression(piece, self._fields))
        return tuple(parts), None

    def _choice(self, condition: list[Token], depth: int) -> Choice:
        test = _expression(condition, self._fields)
        then, end = self._block(depth)
        otherwise: tuple[Part, ...] = ()
        if end is not None and end[0].text == "else":
            if len(end) > 1:
                if end[1] != Token(Kind.NAME, "if"):
                    raise ValueError(f"{end[1].text[:40]!r} after else")
                return Choice(test, then, (self._choice(end[2:], depth + 1),))
            otherwise, end = self._block(depth)
            if end is not None and end[0].text == "else":
                raise ValueError("an if has more than one else")
        if end is None:
            raise ValueError("an if is not closed: {{end}} is missing")
        if len(end) > 1:
            raise ValueError(f"{end[1].text[:40]!r} after end")
        return Choice(test, then, otherwise)


def _expression(tokens: Sequence[Token], fields: Mapping[str, str]) -> Expression:
    waiting = iter(tokens)
    found = _pipeline(waiting, 0, fields)
    if found is None or next(waiting, None) is not None:
        raise ValueError("a bracket is closed that was not opened")
    return found


def _pipeline(tokens: Iterator[Token], depth: int, fields: Mapping[str, str]) -> Expression | None:
    """What stands before the closing bracket or the end, which it takes with it.

    At depth 0 a closing bracket is one too many: None.
    """
    if depth > _DEEPEST:
        raise RefusedHereError(f"brackets are nested more than {_DEEPEST} times")
    piped: Expression | None = None
    words: list[Expression | str] = []
    for token in tokens:
        if token.kind is Kind.CLOSE:
            return _command(words, piped) if depth else None
        if token.kind is Kind.PIPE:
            piped, words = _command(words, piped), []
        elif token.kind is Kind.OPEN:
            inner = _pipeline(tokens, depth + 1, fields)
            if inner is not None:
                words.append(inner)
        else:
            words.append(_word(token, fields))
    if depth:
        raise ValueError("a bracket is not closed")
    return _command(words, piped)


def _word(token: Token, fields: Mapping[str, str]) -> Expression | str:
    """A value, or the name of a function as text."""
    match token.kind:
        case Kind.STRING:
            return Literal(token.text)
        case Kind.NUMBER:
            return Literal(_number(token.text))
        case Kind.FIELD if token.text in fields:
            return Field(fields[token.text])
        case Kind.FIELD:
            known = ", ".join(f".{name}" for name in fields)
            raise AtExecutionError(f"there is no .{token.text[:40]}; there are {known}")
        case _ if token.text in ("true", "false"):
            return Literal(token.text == "true")
        case _ if token.text in _FOREIGN:
            raise RefusedHereError(f"{token.text} is not supported here")
        case _ if token.text in ("if", "else", "end"):
            raise ValueError(f"{token.text} is not supported here")
        case _:
            return token.text


def _number(text: str) -> int:
    """A number as Go reads it: with a leading zero it is octal."""
    if not re.fullmatch(r"[+-]?0[0-9]+", text):
        return int(text)
    if set(text) & set("89"):
        raise ValueError(f"{text[:40]!r} is no number: one that begins with 0 is octal, as in Go")
    return int(text, 8)


def _command(words: list[Expression | str], piped: Expression | None) -> Expression:
    if not words:
        raise ValueError("nothing stands between {{, | and }}")
    first = words[0]
    if not isinstance(first, str):
        if len(words) > 1:
            raise AtExecutionError(
                "a value is followed by another one; only functions take arguments"
            )
        if piped is not None:
            raise AtExecutionError("something is piped into a value; only functions take it")
        return first
    # A name among the arguments is a call without any, as in Go.
    given = [_call(word, ()) if isinstance(word, str) else word for word in words[1:]]
    return _call(first, given) if piped is None else _call(first, (*given, piped), is_piped=True)


def _call(name: str, arguments: Sequence[Expression], *, is_piped: bool = False) -> Call:
    kinds = [_kind(argument) for argument in arguments]
    functions.check(name, kinds)
    if name == "printf" and isinstance(form := arguments[0], Literal):
        functions.check_form(str(form.value), kinds[1:])
    depth = 1 + max((a.depth for a in arguments if isinstance(a, Call)), default=0)
    if depth > _DEEPEST:
        raise RefusedHereError(f"more than {_DEEPEST} functions work on each other")
    return Call(name, tuple(arguments), depth, is_piped)


def _kind(expression: Expression) -> type | None:
    match expression:
        case Literal(value=value):
            return type(value)
        case Field():
            return str
        case Call(name=name):
            return functions.FUNCTIONS[name].gives
