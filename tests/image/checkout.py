"""The image of this checkout, really built; packages come from the per-user cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from image.build import Builder, Built
from image.errors import ImageError, NotAvailableError
from image.interpreter import host_architecture
from image.source import describe
from provisioner.sandbox.binaries import cache_folder

ROOT = Path(__file__).parents[2]


def architecture() -> str:
    """This machine's; the test is skipped where it has no image."""
    try:
        return host_architecture()
    except ImageError as error:
        pytest.skip(str(error))


def cache() -> Path:
    """Where packages and finished layers are kept."""
    return cache_folder(os.environ) / "image"


def build(wanted: str = "") -> Built:
    """The image, for this machine unless another is wanted; skips where packages cannot be had."""
    own = architecture()
    try:
        return Builder(cache(), print).build(wanted or own, describe(ROOT))
    except NotAvailableError as error:
        pytest.skip(f"the image cannot be built: {error}")
