"""Patches as the API server carries them out, as far as they are used here: RFC 6902 and 7396."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """A merge patch (RFC 7396) applied; neither side is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class MismatchError(Exception):
    """A "test" operation found something else."""


def applied(document: dict[str, Any], operations: Sequence[Any]) -> dict[str, Any]:
    """The document afterwards; all operations or none.

    Raises:
        MismatchError: a "test" operation found something else.
        LookupError: what an operation names is not there.
    """
    changed = copy.deepcopy(document)
    for each in operations:
        *parents, last = [_step(part) for part in each["path"].split("/")[1:]]
        parent: Any = changed
        for step in parents:
            parent = parent[int(step) if isinstance(parent, list) else step]
        match each["op"]:
            case "test" if parent[last] != each["value"]:
                raise MismatchError(each["path"])
            case "test":
                pass
            case "add" if isinstance(parent, list):
                parent.insert(len(parent) if last == "-" else int(last), each["value"])
            case "add":
                parent[last] = each["value"]
            case "remove":
                del parent[int(last) if isinstance(parent, list) else last]
            case other:
                raise AssertionError(other)
    return changed


def _step(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
