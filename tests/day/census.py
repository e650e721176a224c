"""What a controller holds in memory: every object that can be reached from it, counted.

The cluster's other half lives in the same process, so its RSS tells nothing about the controller.
Counted are the objects that the controller and the tasks of its process refer to, directly or not:
their number, their bytes (``sys.getsizeof``), what they are and which class of the product's they
belong to, and the lengths of the containers by the class and attribute that own them, which names a
leak. What is shared with all (modules, classes, functions)
and what is beyond its edges is left out.
"""

from __future__ import annotations

import gc
import sys
import types
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

_SHARED = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType)
_OURS = "provisioner."


@dataclass(slots=True)
class Held:
    """What there was at one time."""

    objects: int = 0
    size_bytes: int = 0
    tasks: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    containers: Counter[str] = field(default_factory=Counter)

    @property
    def mib(self) -> float:
        """Bytes in MiB."""
        return self.size_bytes / 2**20


def count(roots: Iterable[Any], beyond: Iterable[Any], beyond_types: tuple[type, ...]) -> Held:
    """Count everything that roots refer to, up to what is beyond.

    Args:
        roots: the controller, its tasks.
        beyond: objects at which to stop.
        beyond_types: and types.
    """
    held = Held()
    seen = {id(each) for each in beyond}
    stop = (*_SHARED, *beyond_types)
    todo = [each for each in roots if id(each) not in seen]
    seen |= {id(each) for each in todo}
    owners = [""] * len(todo)
    kinds: Counter[tuple[str, type]] = Counter()
    alive: list[Any] = []  # ids are those of objects that live
    while todo:
        found, owner = todo.pop(), owners.pop()
        held.objects += 1
        held.size_bytes += _size_bytes(found)
        kind = type(found)
        kinds[owner, kind] += 1
        if kind.__module__.startswith(_OURS):
            _note_containers(found, kind, held)
            owner = kind.__qualname__
        for each, field_name in _referents(found):
            if isinstance(each, stop) or id(each) in seen:
                continue
            seen.add(id(each))
            todo.append(each)
            owners.append(f"{owner}.{field_name}" if field_name else owner)
            alive.append(each)
    held.kinds.update({_named(kind, owner): n for (owner, kind), n in kinds.items()})
    return held


def _named(kind: type, owner: str) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return f"{name} of {owner}" if owner else name


def _size_bytes(found: Any) -> int:
    # What msgspec says of the size of its views of bytes is nonsense.
    return memoryview(found).nbytes if isinstance(found, msgspec.Raw) else sys.getsizeof(found)


def _referents(found: Any) -> Iterable[tuple[Any, str]]:
    """What an object refers to, and in which field where it has some."""
    if isinstance(found, msgspec.Struct):  # hidden from the garbage collector
        return [(getattr(found, name), name) for name in found.__struct_fields__]
    return ((each, "") for each in _unnamed(found))


def _unnamed(found: Any) -> Iterable[Any]:
    if isinstance(found, dict):  # whose keys the collector skips where all are strings
        return [*found.keys(), *found.values()]
    if isinstance(found, types.FunctionType):  # its globals are everybody's
        return [*(found.__closure__ or ()), *(found.__defaults__ or ())]
    if isinstance(found, types.FrameType):
        return found.f_locals.values()
    if isinstance(found, types.CoroutineType):
        return [each for each in (found.cr_frame, found.cr_await) if each is not None]
    return gc.get_referents(found)


def _note_containers(found: Any, kind: type, held: Held) -> None:
    own = vars(found) if hasattr(found, "__dict__") else {}
    slots = (name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
    for name in {*own, *slots}:
        value = own.get(name) if name in own else getattr(found, name, None)
        if isinstance(value, (dict, set, list, deque)) and value:
            held.containers[f"{kind.__qualname__}.{name}"] += len(value)
