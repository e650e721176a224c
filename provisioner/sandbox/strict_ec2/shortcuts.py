"""moto made quicker, in place, without a change in what it answers.

For the calls that stay moto's: a DescribeInstances of ten instances with 25 volumes each took
64 ms.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from provisioner.sandbox.strict_ec2 import motos

_DECLARATION = '<?xml version="1.0" encoding="utf-8"?>\n'


def apply() -> None:
    """Patch moto; before its first request."""
    _reflection()
    _possible_keys()
    _transformers()
    motos.serialize.EC2Serializer._serialize_body = lambda _, body: (  # noqa: SLF001 (in place)
        _DECLARATION + "".join(emit(body))
    )


def _reflection() -> None:
    """Two look-ups that moto makes anew for each request: 180 stat calls, and every method."""
    backends, responses = motos.backends, motos.responses
    names = list(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: names
    responses.method_names_from_class = functools.cache(responses.method_names_from_class)


def _possible_keys() -> None:
    """Under which names a value may be found depends on its class and shape alone."""
    picker = motos.serialize.XFormedAttributePicker
    find = picker.get_possible_keys
    found: dict[tuple[Any, ...], tuple[str, ...]] = {}

    def get_possible_keys(self: Any, context: Any) -> tuple[str, ...]:
        mark = (type(context.obj), context.key, context.shape)
        if mark not in found:
            found[mark] = tuple(find(self, context))
        return found[mark]

    picker.get_possible_keys = get_possible_keys


def _transformers() -> None:
    """Which transformer a path has is found by its end, among twenty, for every single value."""
    missing, get_value = motos.serialize.MISSING, motos.core_utils.get_value
    known: dict[tuple[int, int, str], Callable[[Any], Any] | None] = {}

    def transformer_of(transformers: dict[str, Any], path: str) -> Callable[[Any], Any] | None:
        # A response may add to its transformers: their number is part of the mark.
        mark = (id(transformers), len(transformers), path)
        if mark not in known:
            known[mark] = next((t for end, t in transformers.items() if path.endswith(end)), None)
        return known[mark]

    def pick(self: Any, context: Any) -> Any:
        value = None
        for key in self.get_possible_keys(context):
            found = get_value(context.obj, key, missing)
            if found is not missing:
                value = found
                break
        path = f"{context.key_path}.{context.key}"
        transform = transformer_of(self.response_transformers, path)
        return value if transform is None else transform(value)

    motos.serialize.XFormedAttributePicker.__call__ = pick


def emit(body: Mapping[str, Any]) -> Iterator[str]:
    """Write a mapping as XML like xmltodict: lists repeat an element, ``@x`` is an attribute."""
    for name, value in body.items():
        if name.startswith("@"):
            continue
        for each in value if isinstance(value, list) else (value,):
            yield from _element(name, each)


def _element(name: str, value: Any) -> Iterator[str]:
    match value:
        case Mapping():
            marks = "".join(
                f" {key[1:]}={quoteattr(str(mark))}"
                for key, mark in value.items()
                if key.startswith("@")
            )
            yield f"<{name}{marks}>"
            yield from emit(value)
            yield f"</{name}>"
        case None:
            yield f"<{name}/>"
        case bool():
            yield f"<{name}>{str(value).lower()}</{name}>"
        case _:
            yield f"<{name}>{escape(str(value))}</{name}>"
