"""A cluster that is broken in one way, or healthy in one: how it gets so, and what is to be said."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from tests.cluster.cluster import Json
from tests.cluster.place import Place

Make = Callable[[Place], AbstractAsyncContextManager[str]]
"""Breaks something, waits until its symptom shows, gives the object to explain ("pvc data"; "" for
none), and takes it back at the end."""


@dataclass(frozen=True, slots=True)
class Broken:
    """One way in which a cluster is broken.

    Attributes:
        what: is broken, a sentence without its full stop; the name in tests and in docs.
        make: has it so for a while.
        causes: the ids of the first links of the chains that ``explain`` tells, one for each cause;
            none if no object shows it.
        check: the id of the check of ``doctor`` that fails or warns; "" if none looks at it.
        arguments: with which ``doctor`` looks.
    """

    what: str
    make: Make
    causes: tuple[str, ...]
    check: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For pytest: without spaces."""
        return self.what.replace(" ", "_")

    def is_found(self, checks: dict[str, Json]) -> bool:
        """Whether its check complains."""
        return checks.get(self.check, {}).get("verdict") in {"failed", "warning"}


class Matrix:
    """The ways of one file, in its order."""

    def __init__(self) -> None:
        self.ways: list[Broken] = []

    def broken(
        self, what: str, *causes: str, check: str = "", arguments: tuple[str, ...] = ()
    ) -> Callable[[Make], Make]:
        """Add a way."""

        def added(make: Make) -> Make:
            self.ways.append(Broken(what, make, causes, check, arguments))
            return make

        return added
