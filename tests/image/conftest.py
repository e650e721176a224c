"""The image of this checkout, really built, once a run; packages come from the per-user cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from image.build import Builder, Built
from image.errors import ImageError, NotAvailableError
from image.interpreter import host_architecture
from image.source import describe
from provisioner.sandbox.binaries import cache_folder
from tests.image.opened import Opened

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def architecture() -> str:
    try:
        return host_architecture()
    except ImageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cache() -> Path:
    return cache_folder(os.environ) / "image"


@pytest.fixture(scope="session")
def built(architecture: str, cache: Path) -> Built:
    try:
        return Builder(cache, print).build(architecture, describe(ROOT))
    except NotAvailableError as error:
        pytest.skip(f"the image cannot be built: {error}")


@pytest.fixture(scope="session")
def opened(built: Built) -> Opened:
    return Opened.of(built.archive.data)
