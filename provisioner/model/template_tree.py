"""What a tag's template is once it is read, and what it gives: for one claim, and for every claim.

Source: Go 1.26 text/template; aws-ebs-csi-driver v1.64 pkg/util/template (read 2026-11-21).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from provisioner.model import template_functions as functions
from provisioner.model.refusal import RefusedHereError
from provisioner.model.template_functions import Value


@dataclass(frozen=True, slots=True)
class Names:
    """What a template can name: the claim and its persistent volume, or a snapshot."""

    claim_namespace: str = ""
    claim_name: str = ""
    persistent_volume_name: str = ""
    snapshot_namespace: str = ""
    snapshot_name: str = ""
    content_name: str = ""


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


class DependsOnClaimError(Exception):
    """A value that only a claim's names tell."""


def rendered(parts: tuple[Part, ...], names: Names) -> Iterator[str]:
    """The pieces of the text for one claim.

    Raises:
        ValueError: one sentence: what cannot be worked out.
    """
    for part in parts:
        match part:
            case str():
                yield part
            case Choice():
                holds = functions.is_true(value_of(part.condition, names))
                yield from rendered(part.then if holds else part.otherwise, names)
            case _:
                yield functions.shown(value_of(part, names))


def value_of(expression: Expression, names: Names | None) -> Value:
    """What an expression gives for a claim; without ``names``, for whichever claim.

    Raises:
        ValueError: one sentence: it cannot be worked out.
        DependsOnClaimError: without ``names``: it is another value for each claim.
    """
    match expression:
        case Literal(value=value):
            return value
        case Field(name=name):
            if names is None:
                raise DependsOnClaimError
            text: str = getattr(names, name)
            return text
        case Call(name="and" | "or" as name, arguments=arguments, is_piped=is_piped):
            if is_piped:
                arguments = (*arguments[:-1], Literal(value_of(arguments[-1], names)))
            value = value_of(arguments[0], names)
            for argument in arguments[1:]:
                if functions.is_true(value) is (name == "or"):
                    break  # Go works out no more than it needs
                value = value_of(argument, names)
            return value
        case Call(name=name, arguments=arguments):
            return functions.call(name, [value_of(argument, names) for argument in arguments])


def least_characters(parts: tuple[Part, ...], check: Callable[[str], None]) -> int:
    """How many characters every claim's text has at least, whatever the claim is called.

    Proven without a claim: what depends on its names counts for nothing, and of two branches that
    they choose between the shorter one counts. ``check`` is given each piece that is certain, and
    raises if no text may have it.

    Raises:
        ValueError: one sentence: no claim's text can be worked out.
    """
    return sum(_least(part, check) for part in parts)


def _least(part: Part, check: Callable[[str], None]) -> int:
    match part:
        case str():
            check(part)
            return len(part)
        case Choice():
            return _least_of_branches(_branches(part), check)
        case Call(name="println"):
            raise RefusedHereError("function println ends with a line break, which no tag can have")
        case _:
            try:
                text = functions.shown(value_of(part, None))
            except DependsOnClaimError:
                return 0
            check(text)
            return len(text)


def _branches(choice: Choice) -> tuple[tuple[Part, ...], ...]:
    """The branches that some claim may take."""
    if isinstance(choice.condition, Field):
        return (choice.then,)  # nothing of a claim is without a name
    try:
        holds = functions.is_true(value_of(choice.condition, None))
    except DependsOnClaimError:
        return (choice.then, choice.otherwise)
    return (choice.then if holds else choice.otherwise,)


def _least_of_branches(branches: tuple[tuple[Part, ...], ...], check: Callable[[str], None]) -> int:
    """Of the branches that can be worked out; the mildest refusal if none can."""
    lengths: list[int] = []
    faults: list[ValueError] = []
    for branch in branches:
        try:
            lengths.append(least_characters(branch, check))
        except ValueError as error:
            faults.append(error)
    if not lengths:
        raise next((f for f in faults if isinstance(f, RefusedHereError)), faults[0])
    return min(lengths)
