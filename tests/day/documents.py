"""How an API server changes a document: merge patches and strategic ones, on plain JSON.

Source: RFC 7386; Kubernetes "Update API Objects in Place Using kubectl patch" for the strategies of
the lists that occur here (finalizers are merged, conditions by their type).
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_REMOVE = "$deleteFromPrimitiveList/"
_SETS = frozenset({"finalizers"})
_KEYED = {"conditions": "type"}


def strategic(target: Any, patch: Any) -> Any:
    """A strategic merge patch applied; neither side is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith(_REMOVE):
            name = key.removeprefix(_REMOVE)
            left = [each for each in result.get(name) or () if each not in value]
            if left:
                result[name] = left
            else:
                result.pop(name, None)
        elif value is None:
            result.pop(key, None)
        elif key in _SETS:
            result[key] = list(dict.fromkeys([*(result.get(key) or ()), *value]))
        elif key in _KEYED:
            result[key] = _by_key(result.get(key) or [], value, _KEYED[key])
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _by_key(there: list[Json], patch: list[Json], name: str) -> list[Json]:
    found = {each[name]: each for each in there}
    for each in patch:
        if each.get("$patch") == "delete":
            found.pop(each[name], None)
        else:
            found[each[name]] = strategic(found.get(each[name]), each)
    return list(found.values())
