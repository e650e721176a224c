"""JSON of any depth into structs, where msgspec stops at Python's limit of recursion.

A user who may write an object may nest its ``metadata.managedFields`` up to the depth at which the
API server stops reading, 10,000 (sigs.k8s.io/json, json-iterator): field sets may have any keys
below a scalar. Python's limit is 1,000. One such claim must not blind the controller to all others.
Source: structured-merge-diff fieldpath/serialize.go, typed/reconcile_schema.go (read 2026-11-23).
"""

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

# Nothing that we read is half as deep.
_MOST = 100
# Up to the next bracket outside of texts; matches everywhere, so that it never looks back.
_NEXT = re.compile(rb'(?:[^"{}\[\]]+|"(?:[^"\\]+|\\.?)*+(?:"|\Z))*+([{}\[\]]|\Z)', re.DOTALL)


def decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """Decode; of what is nested too deep, only what is not.

    Raises:
        msgspec.DecodeError: as the decoder does.
    """
    try:
        return decoder.decode(data)
    except RecursionError:
        return decoder.decode(_shallow(bytes(data)))


def _shallow(data: bytes) -> bytes:
    """The same with null for every object and list that is nested too deep."""
    depth, begin = 0, 0
    parts = []
    for found in _NEXT.finditer(data):
        if found[1] in (b"{", b"["):
            depth += 1
            if depth == _MOST:
                parts += [data[begin : found.start(1)], b"null"]
        elif found[1]:
            if depth == _MOST:
                begin = found.end()
            depth -= 1
    return b"".join((*parts, data[begin:]))
