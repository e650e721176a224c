"""Break rules of the strict EC2, one at a time, and run probes against what is left.

::

    .venv/bin/python -m tests.conformance.mutation           # own probes, as the test does
    .venv/bin/python -m tests.conformance.mutation --others  # all probes: who else notices

Prints a JSON object: for each rule what its probe found, and what the probe has used beyond what it
declares; of the whole strict EC2 (--base) also which of its refusals no probe has met.
"""

import ast
import dataclasses
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import CodeType, FrameType, FunctionType
from typing import Any

from provisioner.conformance.probe import Finding, NotRun, Probe, Refuted
from provisioner.conformance.table import RULES
from tests.conformance.in_process import (
    Door,
    PlainMoto,
    SkippingLoop,
    StrictInProcess,
    find,
    place_of,
)
from tests.conformance.mutants import MUTANTS
from tests.conformance.mutants.mutant import Mutant
from tests.conformance.observation import excess, note_refusals, unmet

_PACKAGE = "provisioner.sandbox.strict_ec2"
PROBES = {rule.name: rule.probe for rule in RULES if isinstance(rule.probe, Probe)}


def _target(mutant: Mutant) -> Any:
    """The function or the table that a mutant changes."""
    name, _, rest = mutant.where.partition(".")
    target: Any = import_module(f"{_PACKAGE}.{name}")
    for part in rest.split("."):
        target = getattr(target, part)
    return target


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """Break one rule.

    Raises: LookupError when the code that the mutant changes is not there, exactly once.
    """
    target = _target(mutant)
    with _entry(target, mutant) if isinstance(target, dict) else _code(target, mutant):
        yield


@contextmanager
def _code(function: FunctionType, mutant: Mutant) -> Iterator[None]:
    """Swap a function's code, so that whoever has imported the function runs the other one."""
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise LookupError(f"{mutant.rule}: {mutant.old!r} is not once in {mutant.where}")
    tree = ast.parse(source.replace(mutant.old, mutant.new))
    scope = dict(function.__globals__)
    exec(compile(tree, mutant.rule, "exec"), scope)  # noqa: S102 -- text of this repository
    before, function.__code__ = function.__code__, scope[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = before


@contextmanager
def _entry(table: dict[str, Any], mutant: Mutant) -> Iterator[None]:
    """Change one entry of a table: a limit by one, a bucket's size, or take a filter away."""
    before = table[mutant.old]
    match mutant.new:
        case "":
            table[mutant.old] = lambda _: ["other"]
        case "double":
            table[mutant.old] = (before[0] * 2, before[1])
        case "slow":
            table[mutant.old] = (before[0], before[1] / 5)
        case field:
            limit = field.removesuffix("+1")
            more = getattr(before, limit) + 1
            table[mutant.old] = dataclasses.replace(before, **{limit: more})
    try:
        yield
    finally:
        table[mutant.old] = before


def _told(finding: Finding) -> list[str]:
    return [type(finding).__name__, finding.why if isinstance(finding, NotRun) else finding.seen]


def _run_base(*, plain: bool) -> dict[str, Any]:
    loop = SkippingLoop()
    ec2 = PlainMoto() if plain else StrictInProcess(loop)

    async def run() -> dict[str, Any]:
        door = Door(ec2.answer)
        place = await place_of(door)
        found: dict[str, Any] = {}
        for name, probe in PROBES.items():
            ec2.clean()
            door.sent.clear()
            own = _told(await find(probe, place, door))
            found[name] = {"own": own, "excess": excess(probe, door.sent)}
        return found

    refused = note_refusals()
    found = loop.run_until_complete(run())
    return found if plain else {"rules": found, "unmet": unmet(refused)}


def _run_mutants(mutants: Sequence[Mutant], *, others: bool) -> dict[str, Any]:
    loop = SkippingLoop()
    ec2 = StrictInProcess(loop)
    door = Door(ec2.answer)
    place = loop.run_until_complete(place_of(door))

    def run(name: str) -> Finding:
        ec2.clean()
        door.sent.clear()
        return loop.run_until_complete(find(PROBES[name], place, door))

    runs = {name: _code_run_by(partial(run, name)) for name in PROBES} if others else {}
    result: dict[str, Any] = {}
    for mutant in mutants:
        code = getattr(_target(mutant), "__code__", None)
        near = [name for name, ran in runs.items() if code is None or code in ran]
        with broken(mutant):
            told = _told(run(mutant.rule))
            over = excess(PROBES[mutant.rule], door.sent)
            also = [n for n in near if n != mutant.rule and isinstance(run(n), Refuted)]
        result[mutant.rule] = {"own": told, "excess": over, "also": also}
    return result


def _code_run_by(act: Callable[[], object]) -> set[CodeType]:
    """Which code of the strict EC2 runs: a probe that does not run what is broken cannot notice."""
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            ran.add(frame.f_code)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return {code for code in ran if "strict_ec2" in code.co_filename}


def main() -> None:
    """Run what is asked for."""
    match sys.argv[1:]:
        case ["--base"]:
            document: Any = _run_base(plain=False)
        case ["--plain"]:
            document = _run_base(plain=True)
        case arguments:
            document = _run_mutants(MUTANTS, others="--others" in arguments)
    sys.stdout.write(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
