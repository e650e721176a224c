"""Many things in one call: cut to size, page by page, and none of them costs another its answer.

EC2 refuses a whole call for one thing in it that it does not like. Whatever its reason is, such a
call is asked again in parts until the bad one stands alone. Not so for what is no matter of what a
call names: no credentials, an outage, a quota of calls.
"""

import random
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, TypeVar

from provisioner.ec2.errors import is_read
from provisioner.model.errors import NO_ANSWER, UNKNOWN_ID, Ec2Error, Reason
from provisioner.model.ids import ids_in

# FilterLimitExceeded: "maximum number of filter values specified on a single call is 200".
FILTER_VALUES = 200
PAGE = 500
# After so many refusals without an answer nothing of a batch is believed to pass. Simulated with
# 500 things: where 80 % are refused that is wrong once in 20 times, where 95 % are, every other
# time. They are asked about in another order the next time.
NOTHING_PASSES = 32

T = TypeVar("T")
Call = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
_NOT_THERE = UNKNOWN_ID | {Reason.NEVER_MODIFIED}


def chunks(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    """The ids, each once, in lists of at most ``size``."""
    every = list(dict.fromkeys(ids))
    return (every[start : start + size] for start in range(0, len(every), size))


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


async def ask_about(
    things: Iterable[str], size: int, ask: Callable[[list[str]], Awaitable[object]]
) -> dict[str, Ec2Error]:
    """Ask EC2 about things by their ids, or by values of a filter, ``size`` a call.

    Args:
        things: what cannot be one at all must not be among them (``model/ids.py``).
        size: the most that EC2 takes in one call.
        ask: sends one call; it keeps the answer itself.

    Once any of a batch has passed, each of the others is asked about until it has its answer: two
    calls a thing at most, where nearly all are refused.

    Returns:
        Why, for each that EC2 refuses; but not for those that it does not know.

    Raises:
        Ec2Error: EC2 could not be asked, or nothing of a batch seems to pass.
    """
    refused: dict[str, Ec2Error] = {}
    for some in chunks(things, size):
        refused |= await _ask_about(some, ask)
    return refused


async def _ask_about(
    batch: list[str], ask: Callable[[list[str]], Awaitable[object]]
) -> dict[str, Ec2Error]:
    refused: dict[str, Ec2Error] = {}
    parts, refusals, is_any_good = [batch], 0, False
    while parts:
        part = parts.pop()
        try:
            await ask(part)
        except Ec2Error as failure:
            if is_of_the_call(failure):
                raise
            parts += _split(part, failure)
            if failure.reason in _NOT_THERE:
                continue
            if len(part) == 1:
                refused[part[0]] = failure
            refusals += 1
            if not is_any_good and refusals >= NOTHING_PASSES:
                raise
        else:
            is_any_good = True
    return refused


def whole(answers: Mapping[str, T | Ec2Error]) -> dict[str, T]:
    """The answers, for callers that want all of them or none.

    Raises:
        Ec2Error: EC2 has refused one of them.
    """
    found: dict[str, T] = {}
    for key, answer in answers.items():
        if isinstance(answer, Ec2Error):
            raise answer
        found[key] = answer
    return found


def is_of_the_call(failure: Ec2Error) -> bool:
    """Whether EC2 would refuse this call for any other thing too.

    Rights to look cannot be limited to some things (service authorization reference of EC2: no
    Describe action has a resource type for that), those to change them can.
    """
    is_denied_look = failure.reason is Reason.PERMISSION_DENIED and is_read(failure.action)
    return is_denied_look or failure.reason in NO_ANSWER


def _split(part: list[str], failure: Ec2Error) -> list[list[str]]:
    """What is to be asked about again; the last one first.

    EC2 may name what it complains of: all that is not there, or one of those that are denied. The
    others go in halves, of no order: neighbours have much in common.
    """
    if len(part) == 1:
        return []
    named = ids_in(failure.message)
    bad, good = [e for e in part if e in named], [e for e in part if e not in named]
    if bad and failure.reason in _NOT_THERE:
        return [good] if good else []
    if not good:
        bad, good = [], bad
    mixed = random.sample(good, len(good))
    return [each for each in (bad, mixed[::2], mixed[1::2]) if each]
