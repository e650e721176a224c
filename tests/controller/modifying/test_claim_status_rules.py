"""What is written to a claim's status: exactly what changes, and nothing of others'."""

from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.controller.modifying.claim_status_rules import NO_NODE_EXPANSION, StatusEdit
from provisioner.model import claim as c
from provisioner.model.meta import ObjectMeta

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
AT = "2026-11-22T12:00:00Z"


def a_claim(annotations: dict[str, str] | None = None, **status: Any) -> c.Claim:
    conditions = [c.Condition(**each) for each in status.pop("conditions", [])]
    return c.Claim(
        metadata=ObjectMeta(name="data", annotations=annotations),
        status=c.ClaimStatus(phase="Bound", conditions=conditions or None, **status),
    )


def true(kind: str, message: str = "", reason: str = "") -> dict[str, str]:
    return {"type": kind, "status": "True", "message": message, "reason": reason}


def new(kind: str, message: str = "", reason: str = "") -> dict[str, str]:
    return true(kind, message, reason) | {"lastTransitionTime": AT}


def gone(kind: str) -> dict[str, str]:
    return {"type": kind, "$patch": "delete"}


GROWING = {
    "allocated_resources": {"storage": "20Gi"},
    "allocated_resource_statuses": {"storage": "ControllerResizeInProgress"},
}
CHANGING = c.ModifyVolumeStatus(target_volume_attributes_class_name="gold", status="InProgress")


def edited(claim: c.Claim, *calls: tuple[str, tuple[Any, ...], dict[str, Any]]) -> StatusEdit:
    edit = StatusEdit(claim, NOW)
    for name, arguments, named in calls:
        getattr(edit, name)(*arguments, **named)
    return edit


def test_both_targets_are_one_patch():
    edit = edited(a_claim(), ("growing", ("20Gi",), {}), ("changing", ("gold",), {}))

    assert edit.status == {
        "allocatedResources": {"storage": "20Gi"},
        "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"},
        "modifyVolumeStatus": {
            "targetVolumeAttributesClassName": "gold",
            "status": "InProgress",
        },
        "conditions": [
            new("Resizing"),
            new("ModifyingVolume", 'Modifying volume to "gold" is in progress.'),
        ],
    }


@pytest.mark.parametrize(
    ("claim", "call"),
    [
        (
            a_claim(**GROWING, conditions=[true("Resizing")]),
            ("growing", ("20Gi",), {}),
        ),
        (
            a_claim(
                modify_volume_status=CHANGING, conditions=[true("ModifyingVolume", "it waits")]
            ),
            ("changing", ("gold", "it waits"), {}),
        ),
        (
            a_claim({NO_NODE_EXPANSION: "true"}, capacity={"storage": "20Gi"}),
            ("grown", ("20Gi",), {}),
        ),
        (a_claim(current_volume_attributes_class_name="gold"), ("changed", ("gold",), {})),
        (a_claim(), ("cancelled", (), {})),
    ],
)
def test_what_is_there_already_is_not_written_again(claim, call):
    assert edited(claim, call).is_empty


def test_a_new_target_clears_what_was_said_about_the_one_before():
    claim = a_claim(
        {NO_NODE_EXPANSION: "true"},
        allocated_resources={"storage": "90Gi"},
        allocated_resource_statuses={"storage": "ControllerResizeInfeasible"},
        conditions=[true("ControllerResizeError", "too large"), true("Foreign")],
    )

    edit = edited(claim, ("growing", ("20Gi",), {}))

    assert edit.status["conditions"] == [gone("ControllerResizeError"), new("Resizing")]
    assert edit.annotations == {NO_NODE_EXPANSION: None}


def test_the_file_system_is_kubelet_s():
    claim = a_claim(**GROWING, conditions=[true("Resizing")])

    status = edited(claim, ("file_system_pending", ("20Gi",), {})).status

    assert status["allocatedResourceStatuses"] == {"storage": "NodeResizePending"}
    removed, pending = status["conditions"]
    assert removed == gone("Resizing")
    assert pending["type"] == "FileSystemResizePending"
    assert "capacity" not in status


def test_a_raw_device_has_all_of_it_at_once():
    claim = a_claim(**GROWING, capacity={"storage": "10Gi"}, conditions=[true("Resizing")])

    edit = edited(claim, ("grown", ("20Gi",), {}))

    assert edit.status == {
        "capacity": {"storage": "20Gi"},
        "allocatedResourceStatuses": {"storage": None},
        "conditions": [gone("Resizing")],
    }
    assert edit.annotations == {NO_NODE_EXPANSION: "true"}


@pytest.mark.parametrize(
    ("for_good", "status"),
    [(True, "ControllerResizeInfeasible"), (False, "ControllerResizeInProgress")],
)
def test_a_refused_size_is_told(for_good, status):
    edit = edited(a_claim(), ("cannot_grow", ("90Gi", "no"), {"for_good": for_good}))

    assert edit.status["allocatedResourceStatuses"] == {"storage": status}
    assert edit.status["conditions"] == [
        new("ControllerResizeError", "failed to expand pvc with no")
    ]


@pytest.mark.parametrize(("for_good", "status"), [(True, "Infeasible"), (False, "InProgress")])
def test_a_refused_class_is_told(for_good, status):
    edit = edited(a_claim(), ("cannot_change", ("gold", "Why", "no"), {"for_good": for_good}))

    assert edit.status["modifyVolumeStatus"]["status"] == status
    failed = 'Modifying volume to "gold" failed. Waiting for retry.'
    assert edit.status["conditions"] == [
        *([new("ModifyingVolume", failed)] if for_good else []),
        new("ModifyVolumeError", "no", "Why"),
    ]


@pytest.mark.parametrize(
    ("size", "status"),
    [("20Gi", "ControllerResizeInfeasible"), ("19Gi", "ControllerResizeInProgress")],
    ids=["the same size again", "another size"],
)
def test_a_new_try_begins_without_the_errors_of_the_one_before(size: str, status: str):
    claim = a_claim(
        allocated_resources={"storage": size},
        allocated_resource_statuses={"storage": status},
        conditions=[true("ControllerResizeError"), true("FileSystemResizePending")],
    )

    edit = edited(claim, ("growing", ("20Gi",), {}))

    gone_ = [gone("FileSystemResizePending"), gone("ControllerResizeError")]
    assert edit.status["conditions"] == [*gone_, new("Resizing")]


def test_a_class_that_is_had_leaves_nothing_behind():
    claim = a_claim(
        modify_volume_status=CHANGING,
        conditions=[true("ModifyingVolume"), true("ModifyVolumeError"), true("Resizing")],
    )

    assert edited(claim, ("changed", ("gold",), {})).status == {
        "modifyVolumeStatus": None,
        "currentVolumeAttributesClassName": "gold",
        "conditions": [gone("ModifyingVolume"), gone("ModifyVolumeError")],
    }


def test_a_condition_that_only_says_something_else_keeps_its_time():
    claim = a_claim(**GROWING, conditions=[true("Resizing", "it waits")])

    (condition,) = edited(claim, ("growing", ("20Gi",), {})).status["conditions"]

    assert condition == true("Resizing")
