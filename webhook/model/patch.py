"""JSON Patches that add and remove: paths escaped, and applied here before they are sent.

An operation that cannot be applied is an internal error of the API server whatever the failure
policy says (measured on Kubernetes 1.36.3), so no patch leaves that was not applied in-process.
Source: RFC 6901 (pointers), RFC 6902 §4.1 and §4.2 (add, remove).
"""

import copy
from collections.abc import Sequence
from typing import Any

from webhook.model.review import Json, Operation


class PatchError(ValueError):
    """A patch that cannot be applied to its object; a mistake of ours."""


def add(value: Any, *keys: str | int) -> Operation:
    """Set a member, or append to an array with the key ``-``; its parent must be there."""
    return Operation(path="".join(f"/{_escaped(key)}" for key in keys), value=value)


def remove(*keys: str | int) -> Operation:
    """Take a member of an object away; it must be there."""
    return Operation(path="".join(f"/{_escaped(key)}" for key in keys), op="remove")


def applied(document: Json, patch: Sequence[Operation]) -> Json:
    """The document after the patch; the one given stays as it is.

    Raises:
        PatchError: a parent is missing, or is neither an object nor an array; what is to be removed
            is no member of an object.
    """
    changed = copy.deepcopy(document)
    for operation in patch:
        *parents, last = [_unescaped(part) for part in operation.path.split("/")[1:]]
        place: Any = changed
        for key in parents:
            place = _member(place, key, operation.path)
        if operation.op == "remove":
            _drop(place, last, operation.path)
        else:
            _set(place, last, copy.deepcopy(operation.value), operation.path)
    return changed


def _member(place: Any, key: str, path: str) -> Any:
    if isinstance(place, dict) and key in place:
        return place[key]
    if isinstance(place, list) and key.isdecimal() and int(key) < len(place):
        return place[int(key)]
    raise PatchError(f"{path}: there is no {key!r}")


def _set(place: Any, key: str, value: Any, path: str) -> None:
    if isinstance(place, dict):
        place[key] = value
    elif isinstance(place, list) and key == "-":
        place.append(value)
    elif isinstance(place, list) and key.isdecimal() and int(key) <= len(place):
        place.insert(int(key), value)
    else:
        raise PatchError(f"{path}: nothing can be added there")


def _drop(place: Any, key: str, path: str) -> None:
    if not isinstance(place, dict) or key not in place:
        raise PatchError(f"{path}: there is nothing to remove")
    del place[key]


def _escaped(key: str | int) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
