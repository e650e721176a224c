"""What the Describe calls share: ids, filters, pages, and no particular order."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error, combination, dry_run
from provisioner.sandbox.strict_ec2.filters import Field, matcher_of

MAX_FILTERS: Final = 50
MAX_FILTER_VALUES: Final = 200
MAX_IDS: Final = 1000
MIN_PAGE: Final = 5
MAX_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Listing:
    """How one kind of thing is listed.

    ``ids``: the parameter that names things, None where there is none; ``id_set``: how EC2 calls it
    in its refusal; ``fields``: what can be filtered by; ``by_id`` finds what is named or refuses;
    ``find`` finds one thing of a page, None when it has gone; ``everything``: all that is visible;
    ``default_page``: the size of a page that is asked for without one, None for all at once.
    """

    ids: str | None
    id_set: str
    fields: Mapping[str, Field]
    by_id: Callable[[Call, list[str]], list[Any]]
    find: Callable[[Call, str], Any]
    everything: Callable[[Call], Iterable[Any]]
    key_of: Callable[[Any], str]
    max_page: int = MAX_PAGE
    min_page: int = MIN_PAGE
    default_page: int | None = None


def list_page(call: Call, listing: Listing) -> tuple[list[Any], str]:
    """Return the things that are named and match every filter, and the XML of the next token.

    Raises: Ec2Error as EC2 refuses ids, filters, page sizes and tokens.
    """
    page, next_token = list_things(call, listing)
    return page, f"<nextToken>{next_token}</nextToken>" if next_token else ""


def list_things(call: Call, listing: Listing) -> tuple[list[Any], str | None]:
    """Return the same, and the next token, None on the last page.

    Raises: Ec2Error as EC2 refuses ids, filters, page sizes and tokens.
    """
    params = call.params
    named = params.values(listing.ids) if listing.ids else []
    page_size = _page_size(call, listing, by_id=bool(named)) or listing.default_page
    matches = _matchers(call, listing)
    if params.boolean("DryRun"):
        raise dry_run()
    token = params.get("NextToken")
    if token and not named:
        return _go_on(call, listing, token, matches, page_size)
    found = [
        each for each in _candidates(call, listing, named) if all(match(each) for match in matches)
    ]
    call.world.random.shuffle(found)
    return _cut(call, [listing.key_of(each) for each in found], found, page_size)


def _candidates(call: Call, listing: Listing, named: list[str]) -> Iterable[Any]:
    if named:
        if len(named) > MAX_IDS:
            raise Ec2Error("InvalidParameterValue", f"A call may name up to {MAX_IDS} ids")
        return listing.by_id(call, list(dict.fromkeys(named)))
    return listing.everything(call)


def _go_on(
    call: Call,
    listing: Listing,
    token: str,
    matches: list[Callable[[Any], bool]],
    page_size: int | None,
) -> tuple[list[Any], str | None]:
    """The next page of what was found before; beyond it nothing is looked at."""
    rest = call.world.pages.get(token)
    if rest is None:
        raise Ec2Error("InvalidNextToken", "The specified NextToken is not valid.")
    page: list[Any] = []
    for at, key in enumerate(rest):
        if len(page) == page_size:
            return page, _keep(call, rest[at:])
        each = listing.find(call, key)
        if each is not None and all(match(each) for match in matches):
            page.append(each)
    return page, None


def _page_size(call: Call, listing: Listing, *, by_id: bool) -> int | None:
    size = call.params.integer("MaxResults")
    if size is None:
        return None
    if by_id:
        raise combination(
            f"The parameter {listing.id_set} cannot be used with the parameter maxResults"
        )
    if not listing.min_page <= size <= listing.max_page:
        raise Ec2Error(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid. "
            f"Expecting a value between {listing.min_page} and {listing.max_page}.",
        )
    return size


def _matchers(call: Call, listing: Listing) -> list[Callable[[Any], bool]]:
    """Read the filters; the values of all of them together are limited (cloud-custodian #3778)."""
    filters = call.params.filters()
    values = sum(len(values) for _, values in filters)
    if len(filters) > MAX_FILTERS or values > MAX_FILTER_VALUES:
        raise Ec2Error(
            "FilterLimitExceeded",
            "The maximum number of filter values specified on a single call is "
            f"{MAX_FILTER_VALUES}",
        )
    return [matcher_of(name, values, listing.fields) for name, values in filters]


def _cut(
    call: Call, keys: list[str], found: list[Any], page_size: int | None
) -> tuple[list[Any], str | None]:
    if page_size is None or len(found) <= page_size:
        return found, None
    return found[:page_size], _keep(call, keys[page_size:])


def _keep(call: Call, rest: list[str]) -> str:
    token = uuid4().hex
    call.world.keep_page(token, rest)
    return token
