"""Reading deep inside a document of which any part may be missing or null."""

from typing import Any


def inside(document: Any, *keys: str) -> Any:
    """The member under these keys; None when it, or anything above it, is not there."""
    for key in keys:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document
