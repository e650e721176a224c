"""IOPS that follow the size: of a class, of tags, and what becomes of them when EC2 says no."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from provisioner.classes.volume_attributes_class_rules import Attributes
from provisioner.controller.modifying.class_rules import Change
from provisioner.controller.modifying.growth_rules import Grow
from provisioner.controller.modifying.rules import (
    BOTH,
    Answers,
    Done,
    Part,
    Requested,
    Send,
    Tag,
    View,
    decide,
)
from provisioner.model.budget import Ledger
from provisioner.model.errors import Reason, StorageError
from provisioner.model.modification import ModifyRequest
from provisioner.model.names import IOPS_FOLLOW_GROWTH, IOPS_PER_GIB
from provisioner.model.volume import Volume, VolumeState

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
VOLUME = Volume("vol-1", VolumeState.IN_USE, "us-east-1a", 10, "io2", 500)
PER_GIB = Attributes(iops_per_gib=100, iops_follow_growth=True)
WRITTEN = {IOPS_PER_GIB: "100", IOPS_FOLLOW_GROWTH: "true"}


def view(volume: Volume = VOLUME, *, size_gib: int | None = None, **given_: Any) -> View:
    grow = Grow(f"{size_gib}Gi", size_gib) if size_gib is not None else None
    requested = Requested(grow, Change("gold", PER_GIB))
    return replace(View(volume, None, Ledger(), NOW, requested), **given_)


def request(size_gib: int | None = None, iops: int | None = None) -> ModifyRequest:
    return ModifyRequest("vol-1", size_gib, None, iops, None)


def test_how_iops_follow_the_size_is_written_once_ec2_has_agreed():
    sent = decide(view())
    assert isinstance(sent, Send)
    assert sent.request == request(iops=1000)

    has = replace(VOLUME, iops=1000)
    assert decide(view(has)) == Tag(WRITTEN, is_optional=True)
    done = decide(view(replace(has, tags=WRITTEN)))
    assert isinstance(done, Done)
    assert done.parts == {Part.ATTRIBUTES}


def test_a_class_is_had_without_the_tags_that_ec2_refuses_and_never_without_its_own():
    has = replace(VOLUME, iops=1000)
    own = {"a": "b"}
    refused = Answers(tags_refused=StorageError(Reason.PERMISSION_DENIED, "not these"))

    assert decide(view(has, tags=own)) == Tag(own, ())  # of its own, and alone
    assert decide(view(has, tags=own, answers=refused)) == Tag(own, ())
    tagged = replace(has, tags=own)
    assert decide(view(tagged, tags=own)) == Tag(WRITTEN, is_optional=True)
    assert isinstance(decide(view(tagged, tags=own, answers=refused)), Done)


def test_a_size_that_is_there_waits_for_no_tags():
    has = replace(VOLUME, size_gib=20, iops=2000)

    done = decide(view(has, size_gib=20))

    assert isinstance(done, Done)
    assert done.parts == {Part.SIZE}


def test_tags_that_were_refused_are_not_tried_again_with_each_look():
    has = replace(VOLUME, iops=1000)
    refused = frozenset({Part.ATTRIBUTES})

    step = decide(view(has, size_gib=20, refused=refused))

    assert isinstance(step, Send)
    assert step.request == request(20)


def test_iops_for_each_gib_count_at_the_size_that_comes():
    has = replace(VOLUME, iops=1000, tags=WRITTEN)

    step = decide(view(has, size_gib=20))

    assert isinstance(step, Send)
    assert (step.request, step.parts) == (request(20, 2000), BOTH)
