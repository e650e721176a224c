"""The condition of a VolumeMove, which ``kubectl wait`` looks at."""

from __future__ import annotations

from msgspec import structs

from provisioner.model.volume_move import Phase, VolumeMove, VolumeMoveStatus

PLANNED, SWAPPED, DONE = "2026-11-29T02:00:00+00:00", "2026-11-29T02:05:00Z", "2026-11-29T02:06:00Z"


def test_it_is_false_since_the_plan_and_true_since_the_end():
    move, told = VolumeMove(), []
    for phase, since in ((Phase.PLANNED, PLANNED), (Phase.SWAPPING, SWAPPED), (Phase.DONE, DONE)):
        conditions = move.conditions_in(phase, f"in {phase}", since)
        move = structs.replace(move, status=VolumeMoveStatus(conditions=conditions))
        (each,) = conditions
        told.append((each.type, each.status, each.reason, each.message, each.last_transition_time))

    assert told == [
        ("Done", "False", "Planned", "in Planned", PLANNED),
        ("Done", "False", "Swapping", "in Swapping", PLANNED),
        ("Done", "True", "Done", "in Done", DONE),
    ]
