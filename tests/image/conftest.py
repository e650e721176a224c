"""The image of this checkout, once a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from image import recipe
from image.build import Built
from tests.image import checkout
from tests.image.opened import Opened


@pytest.fixture(scope="session")
def architecture() -> str:
    return checkout.architecture()


@pytest.fixture(scope="session")
def cache() -> Path:
    return checkout.cache()


@pytest.fixture(scope="session")
def built() -> Built:
    return checkout.build()


@pytest.fixture(scope="session")
def opened(built: Built) -> Opened:
    return Opened.of(built.archive.data)


@pytest.fixture(scope="session", params=recipe.MACHINES)
def either(request: pytest.FixtureRequest, architecture: str) -> Opened:
    """The image for each architecture; that of another machine is made here, and never run."""
    if request.param == architecture:
        found: Opened = request.getfixturevalue("opened")
        return found
    return Opened.of(checkout.build(request.param).archive.data)
