from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.controller.snapshotting import class_rules
from provisioner.model.ebs_snapshot import LockRequest
from provisioner.model.names import PENDING_SETTINGS
from tests.snapshot_builders import a_content, a_snapshot_class

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
DAY = timedelta(days=1)


def test_what_a_class_asks_for_afterwards_is_read_again_from_the_content():
    given = {
        "lockMode": "compliance",
        "LOCKDURATION": "30",
        "fastSnapshotRestoreAvailabilityZones": "us-east-1a",
        "tagSpecification_1": "team=a",
    }
    noted = class_rules.settings_of(a_snapshot_class(parameters=given))
    written = {key: text for key, text in noted.items() if text is not None}
    found = class_rules.pending_settings(a_content(annotations=written))

    assert found.lock == LockRequest("compliance", 30, None, None)
    assert found.fast_zones == ("us-east-1a",)
    assert found.tag_templates == ()


@pytest.mark.parametrize("given", [None, {}, {"tagSpecification_1": "team=a"}])
def test_a_class_that_asks_for_nothing_takes_away_what_was_noted(given: dict[str, str] | None):
    nothing = {PENDING_SETTINGS: None}
    assert class_rules.settings_of(a_snapshot_class(parameters=given)) == nothing
    assert class_rules.settings_of(None) == nothing


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, "", "no", "[]", '{"lockMode": 1}', '{"lockMode": "all"}', '{"lockLater": "1"}'],
)
def test_what_somebody_else_wrote_there_is_not_taken_for_nothing(text: str):
    with pytest.raises(ValueError, match=f"^annotation {PENDING_SETTINGS} of .* cannot be read: "):
        class_rules.pending_settings(a_content(annotations={PENDING_SETTINGS: text}))


@pytest.mark.parametrize("annotations", [{}, {PENDING_SETTINGS: "{}"}])
def test_nothing_that_is_noted_asks_for_nothing(annotations: dict[str, str]):
    found = class_rules.pending_settings(a_content(annotations=annotations))

    assert found == class_rules.SnapshotParameters()


@pytest.mark.parametrize(
    ("ahead", "refused"),
    [
        (-DAY, True),
        (DAY - timedelta(seconds=1), True),
        (DAY, False),
        (36_500 * DAY, False),
        (36_501 * DAY, True),
    ],
)
def test_a_lock_ends_from_a_day_to_36500_days_ahead(ahead: timedelta, *, refused: bool):
    given = {"lockMode": "governance", "lockExpirationDate": (NOW + ahead).isoformat()}
    why = class_rules.untimely_lock(class_rules.parse(given), NOW)

    assert (why is not None) is refused
    assert why is None or "lockDuration" in why


def test_a_lock_for_some_days_is_timely():
    given = {"lockMode": "governance", "lockDuration": "1"}

    assert class_rules.untimely_lock(class_rules.parse(given), NOW) is None
    assert class_rules.untimely_lock(class_rules.parse({}), NOW) is None
