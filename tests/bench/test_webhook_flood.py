"""What the table of the floods says of what was measured."""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest

from provisioner.model.pod import PodSpec
from tests.bench.webhook_flood import ALONE, WAYS, Flooded, markdown
from tests.bench.webhook_stranger import large_pod, volume


def flooded(number: int, each_ms: float, **more: object) -> Flooded:
    values = {"each_ms": [each_ms] * 100, "late_ms": [0.1], "seconds": 10.0} | more
    return Flooded(WAYS[number], **values)  # type: ignore[arg-type]


def row(table: str, name: str) -> list[str]:
    (found,) = [line for line in table.splitlines() if line.startswith(f"| {name} ")]
    return [cell.strip() for cell in found.strip("|").split("|")]


@pytest.mark.parametrize(
    ("number", "took_ms", "says"),
    [(1, 29.9, "+19.9"), (1, 30.1, "+20.1 **missed**"), (4, 90.0, "+80.0")],
)
def test_only_what_the_webhook_has_a_part_in_can_miss(number, took_ms, says):
    table = markdown([flooded(0, 10.0), flooded(number, took_ms)])

    assert row(table, WAYS[number].name)[3] == says
    assert row(table, ALONE.name)[3] == ""


def test_what_was_let_through_and_what_was_wronged_is_told():
    wronged = Counter({"POST: 503 too many": 3})
    table = markdown([flooded(0, 1.0, refused=9, conflicting=10, wronged=wronged)])

    assert row(table, ALONE.name)[-2:] == ["9 of 10", "3 (POST: 503 too many)"]


def test_every_control_stands_behind_what_it_is_for():
    for before, control in pairwise(WAYS):
        if control.is_control:
            assert (before.kind, before.connections) == (control.kind, control.connections)
            assert not before.is_control


def test_the_large_pod_is_of_the_size_and_all_of_it_is_its_affinity():
    body = large_pod()
    spec = msgspec.convert(body["spec"], PodSpec)

    assert 600_000 < len(msgspec.json.encode(body)) < 800_000
    assert sum(len(term.match_expressions or ()) for term in spec.required_terms) == 7_500


def test_each_volume_is_another():
    assert len({volume()["spec"]["csi"]["volumeHandle"] for _ in range(100)}) == 100
