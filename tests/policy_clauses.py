"""Admission policies without one of their clauses each: a test must notice that it is gone.

Not a parser of CEL: it finds brackets, strings and the operators between clauses, and refuses what
it would misread.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Span = tuple[int, int]

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|&&|\|\||[()\[\]{},\x27]|\s\?\s')
_CLOSES = {"(": ")", "[": "]", "{": "}"}
# Calls whose last argument is a condition.
_MACRO = re.compile(r"\.(?:all|exists|filter)$")
# Right before the bracket of an index, not of a list.
_INDEXED = re.compile(r"[\w)\]}]$")
# What a clause becomes that no longer counts.
_NEUTRAL = {"&&": "true", "||": "false"}


@dataclass
class _Group:
    """What is between two brackets, or the whole: its parts end at commas, their clauses at &&, ||."""

    before: str
    bracket: str
    start: int
    parts: list[list[Span]] = field(default_factory=lambda: [[]])
    operator: str = ""

    @property
    def is_list(self) -> bool:
        return self.bracket == "[" and not _INDEXED.search(self.before)

    @property
    def is_condition(self) -> bool:
        """Whether its last part decides something as a whole."""
        return not self.bracket or bool(_MACRO.search(self.before))


def without_a_clause(policy: Json) -> Iterator[tuple[str, Json]]:
    """What is changed, and the policy with that change alone.

    Each clause of an expression, each item of a list, each resource and each operation that the
    policy matches is taken away; each condition is made true, and false.

    Raises:
        ValueError: an expression has something that is not understood here.
    """
    spec = policy["spec"]
    for kind in ("matchConditions", "variables", "validations"):
        for index, each in enumerate(spec.get(kind, ())):
            for changed in mutants(each["expression"], is_value=kind == "variables"):
                mutant = copy.deepcopy(policy)
                mutant["spec"][kind][index]["expression"] = changed
                yield f"{kind}[{index}]: {' '.join(changed.split())}", mutant
    # A rule needs at least one of each, so that it gets one that never occurs here.
    for kind, never in (("resources", "nothing"), ("operations", "CONNECT")):
        for index, rule in enumerate(spec["matchConstraints"]["resourceRules"]):
            for each in rule[kind]:
                mutant = copy.deepcopy(policy)
                changed_rule = mutant["spec"]["matchConstraints"]["resourceRules"][index]
                changed_rule[kind] = [kept for kept in rule[kind] if kept != each] or [never]
                yield f"rule {index} of {rule['resources']} without {each}", mutant


def mutants(expression: str, *, is_value: bool = False) -> Iterator[str]:
    """An expression without one clause or one item of a list, or with one condition decided."""
    for group in _groups(expression):
        spans = [(part[0][0], part[-1][1]) for part in group.parts]
        if group.is_list:
            items = [expression[start:end] for start, end in spans if expression[start:end].strip()]
            for index in range(len(items)):
                kept = items[:index] + items[index + 1 :]
                yield _replaced(expression, (spans[0][0], spans[-1][1]), ", ".join(kept))
        for part in group.parts:
            for clause in part if len(part) > 1 else ():
                yield _replaced(expression, clause, _NEUTRAL[group.operator])
        if group.is_condition and not (is_value and not group.bracket):
            yield _replaced(expression, spans[-1], "true")
            yield _replaced(expression, spans[-1], "false")


def _replaced(expression: str, span: Span, instead: str) -> str:
    return f"{expression[: span[0]]} {instead} {expression[span[1] :]}"


def _groups(expression: str) -> Iterator[_Group]:
    open_groups = [_Group(before="", bracket="", start=0)]
    for token in _TOKEN.finditer(expression):
        group, text = open_groups[-1], token.group()
        if text in _CLOSES:
            open_groups.append(_Group(expression[: token.start()], text, token.end()))
        elif text in _CLOSES.values():
            if _CLOSES.get(group.bracket) != text:
                raise ValueError(f"a bracket is not closed: {expression}")
            group.parts[-1].append((group.start, token.start()))
            yield open_groups.pop()
        elif text in {",", "&&", "||"}:
            group.parts[-1].append((group.start, token.start()))
            group.start = token.end()
            if text == ",":
                group.parts.append([])
            elif group.operator not in {"", text}:
                raise ValueError(f"&& and || need brackets: {expression}")
            else:
                group.operator = text
        elif not text.startswith('"'):
            raise ValueError(f"{text.strip()} is not understood here: {expression}")
    if len(open_groups) > 1:
        raise ValueError(f"a bracket is not closed: {expression}")
    open_groups[0].parts[-1].append((open_groups[0].start, len(expression)))
    yield open_groups[0]
