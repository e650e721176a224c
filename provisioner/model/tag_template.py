"""Tags whose values name the claim: ``team={{ .PVCNamespace | field "-" 0 | toUpper }}``.

The values are templates of Go's text/template in aws-ebs-csi-driver; here the part of that
language that makes sense in a tag: text, ``.PVCNamespace``, ``.PVCName``, ``.PVName``, strings,
numbers, pipes, brackets, ``if``/``else``/``end`` and functions. What is left out (variables,
``range``, ``with``, ``define`` …) is refused by name. What cannot work is refused when the
template is read, as far as that can be seen without a claim.
Source: aws-ebs-csi-driver v1.64 docs/tagging.md and pkg/util/template (read 2026-11-21).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provisioner.model import template_functions as functions
from provisioner.model.template_functions import Value
from provisioner.model.template_tokens import Kind, Token, cut

_DEEPEST = 40
_FOREIGN = ("range", "with", "define", "block", "template", "break", "continue", "nil")


@dataclass(frozen=True, slots=True)
class Names:
    """What a template can name: the claim and its persistent volume."""

    claim_namespace: str = ""
    claim_name: str = ""
    persistent_volume_name: str = ""


_FIELDS = {
    "PVCNamespace": "claim_namespace",
    "PVCName": "claim_name",
    "PVName": "persistent_volume_name",
}


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as it is written."""

    value: Value


@dataclass(frozen=True, slots=True)
class Field:
    """One of ``Names``."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments; what is piped into it is the last one, worked out first."""

    name: str
    arguments: "tuple[Expression, ...]"
    depth: int
    is_piped: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """``{{if}}``."""

    condition: "Expression"
    then: "tuple[Part, ...]"
    otherwise: "tuple[Part, ...]"


Expression = Literal | Field | Call
Part = str | Expression | Choice


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
        return "".join(_rendered(self.parts, names))


def parse(text: str) -> TagTemplate:
    """Read ``key=value``; the key ends at the first ``=``.

    Raises:
        ValueError: one sentence that names what is wrong.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text[:100]!r} is not of the form key=value")
    try:
        return TagTemplate(key, value, _Reader(value).all())
    except ValueError as error:
        raise ValueError(f"the template {value[:100]!r} of tag {key[:40]!r}: {error}") from error


class _Reader:
    """Reads the pieces of one template, from the first to the last."""

    def __init__(self, template: str) -> None:
        self._pieces = cut(template)

    def all(self) -> tuple[Part, ...]:
        parts, end = self._block(0)
        if end is not None:
            raise ValueError(f"{{{{{end[0].text}}}}} without an if before it")
        return parts

    def _block(self, depth: int) -> tuple[tuple[Part, ...], list[Token] | None]:
        """The parts up to an ``else`` or ``end``, and that; None at the end of the template."""
        if depth > _DEEPEST:
            raise ValueError(f"if is nested more than {_DEEPEST} times")
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
                raise ValueError(f"{word} is not supported in a tag")
            else:
                parts.append(_expression(piece))
        return tuple(parts), None

    def _choice(self, condition: list[Token], depth: int) -> Choice:
        test = _expression(condition)
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


def _expression(tokens: Sequence[Token]) -> Expression:
    waiting = iter(tokens)
    found = _pipeline(waiting, 0)
    if found is None or next(waiting, None) is not None:
        raise ValueError("a bracket is closed that was not opened")
    return found


def _pipeline(tokens: Iterator[Token], depth: int) -> Expression | None:
    """What stands before the closing bracket or the end, which it takes with it.

    At depth 0 a closing bracket is one too many: None.
    """
    if depth > _DEEPEST:
        raise ValueError(f"brackets are nested more than {_DEEPEST} times")
    piped: Expression | None = None
    words: list[Expression | str] = []
    for token in tokens:
        if token.kind is Kind.CLOSE:
            return _command(words, piped) if depth else None
        if token.kind is Kind.PIPE:
            piped, words = _command(words, piped), []
        elif token.kind is Kind.OPEN:
            inner = _pipeline(tokens, depth + 1)
            if inner is not None:
                words.append(inner)
        else:
            words.append(_word(token))
    if depth:
        raise ValueError("a bracket is not closed")
    return _command(words, piped)


def _word(token: Token) -> Expression | str:
    """A value, or the name of a function as text."""
    match token.kind:
        case Kind.STRING:
            return Literal(token.text)
        case Kind.NUMBER:
            return Literal(int(token.text))
        case Kind.FIELD if token.text in _FIELDS:
            return Field(_FIELDS[token.text])
        case Kind.FIELD:
            known = ", ".join(f".{name}" for name in _FIELDS)
            raise ValueError(f"there is no .{token.text[:40]}; there are {known}")
        case _ if token.text in ("true", "false"):
            return Literal(token.text == "true")
        case _ if token.text in (*_FOREIGN, "if", "else", "end"):
            raise ValueError(f"{token.text} is not supported here")
        case _:
            return token.text


def _command(words: list[Expression | str], piped: Expression | None) -> Expression:
    if not words:
        raise ValueError("nothing stands between {{, | and }}")
    first = words[0]
    if not isinstance(first, str):
        if len(words) > 1:
            raise ValueError("a value is followed by another one; only functions take arguments")
        if piped is not None:
            raise ValueError("something is piped into a value; only functions take it")
        return first
    # A name among the arguments is a call without any, as in Go.
    given = [_call(word, ()) if isinstance(word, str) else word for word in words[1:]]
    return _call(first, given) if piped is None else _call(first, (*given, piped), is_piped=True)


def _call(name: str, arguments: Sequence[Expression], *, is_piped: bool = False) -> Call:
    functions.check(name, [_kind(argument) for argument in arguments])
    depth = 1 + max((a.depth for a in arguments if isinstance(a, Call)), default=0)
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} functions work on each other")
    return Call(name, tuple(arguments), depth, is_piped)


def _kind(expression: Expression) -> type | None:
    match expression:
        case Literal(value=value):
            return type(value)
        case Field():
            return str
        case Call(name=name):
            return functions.FUNCTIONS[name].gives


def _rendered(parts: tuple[Part, ...], names: Names) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case Choice():
                holds = functions.is_true(_value(part.condition, names))
                yield from _rendered(part.then if holds else part.otherwise, names)
            case _:
                yield functions.shown(_value(part, names))


def _value(expression: Expression, names: Names) -> Value:
    match expression:
        case Literal(value=value):
            return value
        case Field(name=name):
            text: str = getattr(names, name)
            return text
        case Call(name="and" | "or" as name, arguments=arguments, is_piped=is_piped):
            if is_piped:
                arguments = (*arguments[:-1], Literal(_value(arguments[-1], names)))
            value = _value(arguments[0], names)
            for argument in arguments[1:]:
                if functions.is_true(value) is (name == "or"):
                    break  # Go works out no more than it needs
                value = _value(argument, names)
            return value
        case Call(name=name, arguments=arguments):
            return functions.call(name, [_value(argument, names) for argument in arguments])
