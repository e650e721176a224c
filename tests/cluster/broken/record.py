"""A cluster that is broken in one way, or healthy in one: how it gets so, and what is to be said."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum

from tests.cluster.cluster import Json
from tests.cluster.place import Place

Make = Callable[[Place], AbstractAsyncContextManager[str]]
"""Breaks something, waits until its symptom shows, gives the object to explain ("pvc data"; "" for
none), and takes it back at the end."""


class Section(StrEnum):
    """Headings of docs/troubleshooting.md."""

    CLAIM_PENDING = "A claim stays Pending"
    POD_PENDING = "A pod stays Pending"
    POD_CREATING = "A pod stays in ContainerCreating"
    NOT_FORMATTED = "A volume is not formatted (`VolumeNotBlank`)"
    NODE_GONE = "A node is gone and its volumes do not move"
    NOT_GROWN = "A volume does not grow or change"
    SNAPSHOT = "A snapshot is not ready, or does not go away"
    VOLUME_STAYS = "A PersistentVolume does not go away"
    CONTROLLER = "The controller is not ready, or does not work"
    NODE = "A node takes no volumes, or keeps its taint"
    WEBHOOK = "An object is refused"


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
        section: of the troubleshooting page, which says more; None of what is healthy.
        words: that the first link has in its sentence, its proof or its advice.
    """

    what: str
    make: Make
    causes: tuple[str, ...]
    check: str = ""
    arguments: tuple[str, ...] = ()
    section: Section | None = None
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For pytest: without spaces."""
        return self.what.replace(" ", "_")

    def is_found(self, checks: dict[str, Json]) -> bool:
        """Whether its check complains."""
        return checks.get(self.check, {}).get("verdict") in {"failed", "warning"}


class Matrix:
    """The ways of one file, in its order, and the section of those that name no other."""

    def __init__(self, section: Section | None = None) -> None:
        self.ways: list[Broken] = []
        self._section = section

    def broken(
        self,
        what: str,
        *causes: str,
        check: str = "",
        arguments: tuple[str, ...] = (),
        section: Section | None = None,
        words: tuple[str, ...] = (),
    ) -> Callable[[Make], Make]:
        """Add a way."""

        def added(make: Make) -> Make:
            place = section or self._section
            self.ways.append(Broken(what, make, causes, check, arguments, place, words))
            return make

        return added
