"""Tags whose values name the claim: ``team={{ .PVCNamespace | field "-" 0 | toUpper }}``.

Those of a snapshot name the VolumeSnapshot instead.

In aws-ebs-csi-driver the values are templates of Go's text/template. Here they are what its page on
tags documents: the names, its five functions, pipes and brackets, strings, whole numbers, and of
Go's own ``if`` … ``else`` … ``end`` with ``eq``. The rest of that language is refused by name.
Source: aws-ebs-csi-driver v1.64 docs/tagging.md and pkg/util/template/funcs.go (read 2026-11-22).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from provisioner.model.errors import RefusedHereError

__all__ = ["OF_CLAIM", "OF_SNAPSHOT", "Names", "TagTemplate", "parse"]

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

_DEEPEST = 20
_PIECE = re.compile(r"\{\{(?P<trims>-\s)?(?P<action>.*?)(?P<trims_after>\s-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:(?P<field>\.\w+)
    |(?P<number>-?(?:0|[1-9][0-9]{0,8})(?![\w.]))
    |"(?P<quoted>[^"\\\n]*)"|`(?P<raw>[^`]*)`
    |(?P<word>[A-Za-z_]\w*)
    |(?P<mark>[()|]))""",
    re.VERBOSE | re.ASCII,
)
_CONDITION = re.compile(r"\{\{-?\s*if\b")
# Go has these, and here they are not.
_OF_GO = frozenset(
    {"and", "or", "not", "ne", "lt", "le", "gt", "ge", "len", "slice", "index", "lastIndex"}
    | {"print", "printf", "println", "nil", "range", "with", "define", "block", "template"}
)
_KINDS = {str: "a string", int: "a number", bool: "true or false"}

# One word of an action: the group of ``_TOKEN`` that has it, and the text.
Token = tuple[str, str]
_IF, _ELSE, _END = (("word", text) for text in ("if", "else", "end"))
_OPEN, _CLOSE, _PIPE = (("mark", text) for text in "()|")

Value = str | int | bool


@dataclass(frozen=True, slots=True)
class Names:
    """What a template can name: the claim and its persistent volume, or a snapshot."""

    claim_namespace: str = ""
    claim_name: str = ""
    persistent_volume_name: str = ""
    snapshot_namespace: str = ""
    snapshot_name: str = ""
    content_name: str = ""


Worked = Callable[[Names], Value]  # worked out for one volume
Part = str | Callable[[Names], str]


@dataclass(frozen=True, slots=True)
class TagTemplate:
    """One tag: its key as it is, its value as a template; ``text`` is what it was read from."""

    key: str
    text: str
    parts: tuple[Part, ...] = field(compare=False, repr=False)

    @property
    def is_constant(self) -> bool:
        """Whether every volume gets the same value, and no claim can make it fail."""
        return all(isinstance(part, str) for part in self.parts)

    def render(self, names: Names) -> str:
        """The tag's value for one volume.

        Raises:
            ValueError: one sentence: what in the template cannot be worked out.
        """
        return _joined(self.parts, names)


def parse(text: str, fields: Mapping[str, str] = OF_CLAIM) -> TagTemplate:
    """Read ``key=value``; the key ends at the first ``=``, ``fields`` are what it can name.

    Raises:
        RefusedHereError: one sentence: aws-ebs-csi-driver may take it.
        ValueError: one sentence that names what is wrong.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text[:100]!r} is not of the form key=value")
    try:
        return TagTemplate(key, value, _Reader(value, fields).all())
    except ValueError as error:
        told = f"the template {value[:100]!r} of tag {key[:40]!r}: {error}"
        # Go comes to what is wrong in a branch only for some claims.
        is_ours = isinstance(error, RefusedHereError) or _CONDITION.search(value)
        raise (RefusedHereError if is_ours else ValueError)(told) from error


class _Reader:
    """Reads the pieces of one template, from the first to the last, into functions of the names."""

    def __init__(self, template: str, fields: Mapping[str, str]) -> None:
        self._pieces = _cut(template)
        self._fields = fields

    def all(self) -> tuple[Part, ...]:
        parts, end = self._block(0)
        if end:
            raise ValueError(f"{{{{{end[0][1]}}}}} without an if before it")
        return parts

    def _block(self, depth: int) -> tuple[tuple[Part, ...], list[Token]]:
        """The parts up to an ``else`` or ``end``, and that; nothing at the template's end."""
        if depth > _DEEPEST:
            raise RefusedHereError(f"if is nested more than {_DEEPEST} times")
        parts: list[Part] = []
        for piece in self._pieces:
            if isinstance(piece, str):
                parts.append(piece)
            elif piece and piece[0] in (_ELSE, _END):
                return tuple(parts), piece
            elif piece and piece[0] == _IF:
                parts.append(self._choice(piece[1:], depth + 1))
            else:
                parts.append(_shown(self._pipe(iter(piece), 0)))
        return tuple(parts), []

    def _choice(self, condition: list[Token], depth: int) -> Part:
        test = self._pipe(iter(condition), 0)
        then, end = self._block(depth)
        otherwise: tuple[Part, ...] = ()
        if end[:2] == [_ELSE, _IF]:
            otherwise, end = (self._choice(end[2:], depth + 1),), [_END]
        elif end == [_ELSE]:
            otherwise, end = self._block(depth)
        if end != [_END]:
            raise ValueError("an if is not closed by {{end}}, or has more than one {{else}}")
        # Go's truth is Python's.
        return lambda names: _joined(then if test(names) else otherwise, names)

    def _pipe(self, tokens: Iterator[Token], depth: int) -> Worked:
        """What stands before the closing bracket or the end, which it takes with it."""
        if depth > _DEEPEST:
            raise RefusedHereError(f"brackets are nested more than {_DEEPEST} times")
        commands: list[list[Token | Worked]] = [[]]
        for token in tokens:
            if token == _PIPE:
                commands.append([])
            elif token == _OPEN:
                commands[-1].append(self._pipe(tokens, depth + 1))
            elif token == _CLOSE and depth:
                break
            elif token == _CLOSE:
                raise ValueError("a bracket is closed that was not opened")
            else:
                commands[-1].append(token)
        else:
            if depth:
                raise ValueError("a bracket is not closed")
        calls = [self._command(words, piped=bool(at)) for at, words in enumerate(commands)]

        def worked(names: Names) -> Value:
            piped: list[Value] = []
            for call in calls:
                piped = [call(names, piped)]
            return piped[0]

        return worked

    def _command(
        self, words: Sequence[Token | Worked], *, piped: bool
    ) -> Callable[[Names, Sequence[Value]], Value]:
        """One function with its arguments, of which the last may be piped in, or one value."""
        if not words:
            raise ValueError("nothing stands between {{, | and }}")
        first = words[0]
        if callable(first) or first[0] != "word" or first[1] in ("true", "false"):
            if len(words) > 1 or piped:
                raise ValueError("a value takes no arguments; only functions do")
            value = self._value(first)
            return lambda names, _: value(names)
        name = first[1]
        takes = _arguments_of(name)
        given = len(words) - 1 + piped
        if given != takes and not (name == "eq" and given > takes):
            raise ValueError(f"function {name} takes {takes} arguments, not {given}")
        arguments = [self._value(each) for each in words[1:]]
        return lambda names, rest: _called(name, [*(each(names) for each in arguments), *rest])

    def _value(self, word: Token | Worked) -> Worked:
        if callable(word):
            return word
        match word:
            case "quoted" | "raw", text:
                return lambda _: text
            case "number", text:
                return lambda _: int(text)
            case "word", "true" | "false" as text:
                return lambda _: text == "true"
            case "field", text if text[1:] in self._fields:
                return attrgetter(self._fields[text[1:]])
            case "field", text:
                known = ", ".join(f".{name}" for name in self._fields)
                raise ValueError(f"there is no {text[:40]}; there are {known}")
            case _, text:
                _arguments_of(text)
                raise ValueError(f"function {text} needs brackets where it is an argument")


def _cut(template: str) -> Iterator[str | list[Token]]:
    """Texts, and the tokens of actions between them; empty texts are left out."""
    at, trims = 0, False
    for piece in _PIECE.finditer(template):
        text = template[at : piece.start()]
        text = text.lstrip() if trims else text
        if text := text.rstrip() if piece["trims"] else text:
            yield text
        at, trims = piece.end(), bool(piece["trims_after"])
        yield _tokens(piece["action"])
    if "{{" in template[at:]:
        raise ValueError("an action is not closed: }} is missing")
    if text := template[at:].lstrip() if trims else template[at:]:
        yield text


def _tokens(action: str) -> list[Token]:
    found: list[Token] = []
    at, end = 0, len(action.rstrip())
    while at < end:
        token = _TOKEN.match(action, at)
        if token is None or token.lastgroup is None:
            raise RefusedHereError(
                f"{action[at:].strip()[:20]!r} cannot be read: use names, strings without \\, "
                "whole numbers, functions, pipes and brackets"
            )
        found.append((token.lastgroup, token[token.lastgroup]))
        at = token.end()
    return found


def _arguments_of(function: str) -> int:
    """How many arguments a function takes."""
    if function in _FUNCTIONS:
        return len(_FUNCTIONS[function][0])
    known = ", ".join(_FUNCTIONS)
    if function in _OF_GO:
        raise RefusedHereError(f"{function} is not supported in a tag; use if and {known}")
    raise ValueError(f"there is no function {function[:40]!r}; there are {known}")


def _joined(parts: tuple[Part, ...], names: Names) -> str:
    return "".join(part if isinstance(part, str) else part(names) for part in parts)


def _shown(pipe: Worked) -> Part:
    def shown(names: Names) -> str:
        value = pipe(names)
        return str(value).lower() if isinstance(value, bool) else str(value)

    return shown


def _called(name: str, values: Sequence[Value]) -> Value:
    kinds, apply = _FUNCTIONS[name]
    for place, (value, kind) in enumerate(zip(values, kinds, strict=False), start=1):
        if kind is not None and type(value) is not kind:
            got = _KINDS[type(value)]
            raise ValueError(f"argument {place} of function {name} is {_KINDS[kind]}, not {got}")
    try:
        return apply(*values)
    except ValueError as error:
        raise ValueError(f"function {name}: {error}") from error


def _field(delimiter: str, place: int, text: str) -> str:
    parts = text.split(delimiter) if delimiter else list(text)
    if not 0 <= place < len(parts):
        raise ValueError(f"{text[:60]!r} has no part number {place}: it has {len(parts)} parts")
    return parts[place]


def _substring(start: int, end: int, text: str) -> str:
    if start < 0:
        start = 0
    elif not 0 <= end <= len(text):
        end = len(text)
    if not 0 <= start <= end <= len(text):
        raise ValueError(f"{text[:60]!r} has no part from {start} to {end}")
    return text[start:end]


def _eq(first: Value, *others: Value) -> bool:
    for other in others:
        if type(other) is not type(first):
            raise ValueError(f"{_KINDS[type(first)]} and {_KINDS[type(other)]} cannot be compared")
    return first in others


# What each takes, None for a value of any kind, and what it does.
_FUNCTIONS: dict[str, tuple[tuple[type | None, ...], Callable[..., Value]]] = {
    "field": ((str, int, str), _field),
    "substring": ((int, int, str), _substring),
    "toUpper": ((str,), str.upper),
    "toLower": ((str,), str.lower),
    "contains": ((str, str), lambda part, text: part in text),
    "eq": ((None, None), _eq),
}
