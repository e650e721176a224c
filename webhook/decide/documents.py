"""Reading and adding deep inside a document of which any part may be missing or null."""

from typing import Any

from webhook.model.patch import add
from webhook.model.review import Json, Operation


def inside(document: Any, *keys: str) -> Any:
    """The member under these keys; None when it, or anything above it, is not there."""
    for key in keys:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


def put(document: Json, value: Any, *keys: str) -> Operation:
    """Set the member under these keys, together with the parents that are missing or null."""
    depth = 1
    while depth < len(keys) and inside(document, *keys[:depth]) is not None:
        depth += 1
    for key in reversed(keys[depth:]):
        value = {key: value}
    return add(value, *keys[:depth])
