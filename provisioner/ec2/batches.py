"""Many ids in one call: cut to size, without those that EC2 does not know, page by page."""

import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, TypeVar

from provisioner.model.errors import Ec2Error, Reason

# FilterLimitExceeded: "maximum number of filter values specified on a single call is 200".
FILTER_VALUES = 200
PAGE = 500

T = TypeVar("T")
Call = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
_IDS = re.compile(r"\b(?:vol|i|snap)-[0-9a-z]+")


def chunks(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    """The ids, each once, in lists of at most ``size``."""
    every = list(dict.fromkeys(ids))
    return (every[start : start + size] for start in range(0, len(every), size))


def without_missing(failure: Ec2Error, ids: list[str], reasons: Collection[Reason]) -> list[str]:
    """The ids that EC2 did not complain about when it refused a whole call.

    Nothing is left of a single id; all are, if the text names none of them.

    Raises:
        Ec2Error: the failure itself, if it has another reason.
    """
    if failure.reason not in reasons:
        raise failure
    if len(ids) == 1:
        return []
    named = set(_IDS.findall(failure.message))
    return [each for each in ids if each not in named]


def one_of(name: str, values: Sequence[str]) -> dict[str, Any]:
    r"""A filter of EC2: its thing has one of these values.

    What it finds is to be looked at again, letter for letter, where a value may hold one of
    ``*?\``: filters know wildcards.
    """
    # \ is an escape character in EC2's filters, as * and ? are wild.
    return {"Name": name, "Values": [value.replace("\\", "?") for value in values]}


async def pages(call: Call, params: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The answers to one question, from the first page to the last.

    Raises:
        Ec2Error: any page failed; there is no partial answer.
    """
    token: str | None = None
    while True:
        answer = await call({**params, "NextToken": token} if token else {**params})
        yield answer
        token = answer.get("NextToken")
        if not token:
            return


async def those_that_exist(
    ids: Sequence[str],
    size: int,
    missing: Collection[Reason],
    *,
    by_ids: Callable[[list[str]], Awaitable[dict[str, T]]],
    look_for: Callable[[list[str]], Awaitable[dict[str, T]]],
) -> dict[str, T]:
    """What EC2 knows of these ids, ``size`` a call; those that it does not know are absent.

    EC2 refuses a whole call for one unknown id: those that its text names are left out and the
    others asked for again at once; should that fail too, they are looked for, by a filter, which
    only leaves out what is not there.

    Raises:
        Ec2Error: EC2 could not be asked.
    """
    found: dict[str, T] = {}
    for some in chunks(ids, size):
        found.update(await _those_that_exist(some, missing, by_ids, look_for))
    return found


async def _those_that_exist(
    ids: list[str],
    missing: Collection[Reason],
    by_ids: Callable[[list[str]], Awaitable[dict[str, T]]],
    look_for: Callable[[list[str]], Awaitable[dict[str, T]]],
) -> dict[str, T]:
    for _ in range(2):
        if not ids:
            return {}
        try:
            return await by_ids(ids)
        except Ec2Error as failure:
            ids = without_missing(failure, ids, missing)
    return await look_for(ids)


async def on_all(
    ids: list[str], missing: Collection[Reason], ask: Callable[[list[str]], Awaitable[object]]
) -> None:
    """One call for many ids, or without those that are gone by a few more.

    Raises:
        Ec2Error: not all of the calls succeeded.
    """
    while ids:
        try:
            await ask(ids)
        except Ec2Error as failure:
            rest = without_missing(failure, ids, missing)
            if len(rest) < len(ids):
                ids = rest
                continue
            middle = len(ids) // 2  # the text names none of them
            await on_all(ids[:middle], missing, ask)
            await on_all(ids[middle:], missing, ask)
        return
