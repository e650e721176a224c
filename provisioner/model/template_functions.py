"""The functions of tag templates: aws-ebs-csi-driver's own, and Go's that make sense in a tag.

Go's strings are bytes: indices count bytes of UTF-8, and a cut within a character is refused.
Source: aws-ebs-csi-driver v1.64 pkg/util/template/funcs.go; Go 1.26 text/template "Functions".
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.model.refusal import AtExecutionError, RefusedHereError, retold

Value = str | int | bool

_VERB = re.compile(r"%(?P<form>-?0?[0-9]{0,3}(?:\.[0-9]{1,3})?)(?P<verb>.|\Z)", re.DOTALL)
_NAMES = {str: "a string", int: "a number", bool: "true or false"}
_SHOWS = {"s": (str,), "d": (int,), "t": (bool,), "v": (str, int, bool)}


@dataclass(frozen=True, slots=True)
class Function:
    """What a function takes and gives; None is a value of any kind.

    ``most``: how many arguments it takes at most; None: any number, the last kind again.
    """

    takes: tuple[type | None, ...]
    gives: type | None
    apply: Callable[..., Value]
    least: int
    most: int | None

    def takes_at(self, place: int) -> type | None:
        """The kind of one argument."""
        return self.takes[min(place, len(self.takes) - 1)]


def is_true(value: Value) -> bool:
    """Go's truth: not empty, not zero."""
    return bool(value)


def shown(value: Value) -> str:
    """A value as Go prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check(name: str, arguments: Sequence[type | None]) -> None:
    """Look whether a function takes arguments of these kinds; None is not known before.

    Raises:
        ValueError: one sentence.
    """
    function = FUNCTIONS.get(name)
    if function is None:
        if name in ("html", "js", "call", "urlquery"):
            raise AtExecutionError(
                f"function {name} is switched off in tags, as in aws-ebs-csi-driver"
            )
        raise ValueError(f"there is no function {name[:40]!r}; there are {', '.join(FUNCTIONS)}")
    count, most = len(arguments), function.most
    if count < function.least or (most is not None and count > most):
        bounds = f"{function.least} to {most}" if most is not None else f"at least {function.least}"
        wanted = str(most) if function.least == most else bounds
        raise AtExecutionError(f"function {name} takes {wanted} arguments, not {count}")
    for place, kind in enumerate(arguments):
        wants = function.takes_at(place)
        if wants is not None and kind is not None and kind is not wants:
            raise AtExecutionError(
                f"argument {place + 1} of function {name} is {_NAMES[wants]}, not {_NAMES[kind]}"
            )


def call(name: str, arguments: Sequence[Value]) -> Value:
    """What a function gives.

    Raises:
        ValueError: one sentence.
    """
    check(name, [type(argument) for argument in arguments])
    try:
        return FUNCTIONS[name].apply(*arguments)
    except ValueError as error:
        raise retold(error, f"function {name}: {error}") from error


def _upper(text: str) -> str:
    return "".join(c.upper() if len(c.upper()) == 1 else c for c in text)  # Go knows no ß -> SS


def _lower(text: str) -> str:
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _cut(text: str, start: int, end: int) -> str:
    raw = text.encode()
    if not 0 <= start <= end <= len(raw):
        raise ValueError(f"{text[:60]!r} has no part from {start} to {end}")
    try:
        return raw[start:end].decode()
    except UnicodeDecodeError:
        raise RefusedHereError(
            f"{start} to {end} of {text[:60]!r} cuts a character in two"
        ) from None


def _substring(start: int, end: int, text: str) -> str:
    length = len(text.encode())
    if start < 0:
        return _cut(text, 0, end)
    return _cut(text, start, length if end < 0 or end > length else end)


def _slice(text: str, start: int = 0, end: int | None = None) -> str:
    return _cut(text, start, len(text.encode()) if end is None else end)


def _field(delimiter: str, place: int, text: str) -> str:
    parts = text.split(delimiter) if delimiter else list(text)
    if not 0 <= place < len(parts):
        raise ValueError(f"{text[:60]!r} has no part number {place}: it has {len(parts)} parts")
    return parts[place]


def _index(part: str, text: str) -> int:
    return text.encode().find(part.encode())


def _last_index(part: str, text: str) -> int:
    return text.encode().rfind(part.encode())


def _print(*values: Value) -> str:
    out = ""
    for place, value in enumerate(values):
        apart = place and not isinstance(value, str) and not isinstance(values[place - 1], str)
        out += (" " if apart else "") + shown(value)
    return out


def check_form(form: str, kinds: Sequence[type | None]) -> None:
    """Look whether ``printf`` can show values of these kinds in a form; None is not known before.

    Go shows its complaint in the text where a value does not fit; here that is refused.

    Raises:
        RefusedHereError: one sentence.
    """
    left = list(kinds)
    for found in _VERB.finditer(form):
        verb = found["verb"]
        if verb == "%" and not found["form"]:
            continue
        shows = _SHOWS.get(verb)
        if shows is None:
            raise RefusedHereError(f"{found[0]!r} is not supported; %s, %d, %t, %v and %% are")
        if not left:
            raise RefusedHereError(f"nothing is given for {found[0]!r}")
        kind = left.pop(0)
        if kind is not None and kind not in shows:
            raise RefusedHereError(f"{found[0]!r} cannot show {_NAMES[kind]}")
    if left:
        raise RefusedHereError(f"{len(left)} values are given too many")


def _printf(form: str, *values: Value) -> str:
    check_form(form, [type(value) for value in values])
    left = iter(values)

    def replaced(found: re.Match[str]) -> str:
        if found["verb"] == "%":
            return "%"
        value = next(left)
        if type(value) is int:
            return f"%{found['form']}d" % value
        # Go pads strings with zeros too; nobody means that.
        return f"%{found['form']}s" % shown(value)

    return _VERB.sub(replaced, form)


def _println(*values: Value) -> str:
    return " ".join(shown(value) for value in values) + "\n"


def _eq(first: Value, *others: Value) -> bool:
    for other in others:
        if type(other) is not type(first):
            raise ValueError(f"{_NAMES[type(first)]} and {_NAMES[type(other)]} are no equals")
    return first in others


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def ordered(one: Value, other: Value) -> bool:
        if type(one) is not type(other) or isinstance(one, bool):
            raise ValueError(f"{_NAMES[type(one)]} and {_NAMES[type(other)]} have no order")
        return compare(*(v.encode() if isinstance(v, str) else v for v in (one, other)))

    return ordered


def _of(
    takes: tuple[type | None, ...],
    gives: type | None,
    apply: Callable[..., Value],
    *,
    least: int | None = None,
    endless: bool = False,
) -> Function:
    return Function(
        takes,
        gives,
        apply,
        least=len(takes) if least is None else least,
        most=None if endless else len(takes),
    )


def _not_called(*_: Value) -> Value:
    raise ValueError("is worked out argument by argument")  # pragma: no cover -- see tag_template


FUNCTIONS: dict[str, Function] = {
    "field": _of((str, int, str), str, _field),
    "substring": _of((int, int, str), str, _substring),
    "toUpper": _of((str,), str, _upper),
    "toLower": _of((str,), str, _lower),
    "contains": _of((str, str), bool, lambda part, text: part in text),
    "index": _of((str, str), int, _index),
    "lastIndex": _of((str, str), int, _last_index),
    "len": _of((str,), int, lambda text: len(text.encode())),
    "slice": _of((str, int, int), str, _slice, least=1),
    "print": _of((None,), str, _print, least=0, endless=True),
    "println": _of((None,), str, _println, least=0, endless=True),
    "printf": _of((str, None), str, _printf, least=1, endless=True),
    "eq": _of((None, None), bool, _eq, endless=True),
    "ne": _of((None, None), bool, lambda one, other: not _eq(one, other)),
    "lt": _of((None, None), bool, _ordered(operator.lt)),
    "le": _of((None, None), bool, _ordered(operator.le)),
    "gt": _of((None, None), bool, _ordered(operator.gt)),
    "ge": _of((None, None), bool, _ordered(operator.ge)),
    "not": _of((None,), bool, lambda value: not is_true(value)),
    "and": _of((None,), None, _not_called, endless=True),
    "or": _of((None,), None, _not_called, endless=True),
}
