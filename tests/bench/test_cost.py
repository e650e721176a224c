"""Costs of sizes, and the line through them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench import cost
from tests.bench.cost import Cost
from tests.bench.scale_stage import Scaled, Stage
from tests.bench.standing import Standing


def a_cost(volumes: int, rest_mib: float, minute_mib: float | None = 1.0) -> Cost:
    return Cost(volumes, "2026-11-28", rest_mib, rest_mib + 10, 5.0, 0.5, minute_mib)


def a_stage(
    name: str, *, cpu_s: float, rest_mib: float, peak_mib: float, seconds: float = 0.0
) -> Stage:
    return Stage(name, 0.0, seconds, cpu_s=cpu_s, rest_mib=rest_mib, peak_mib=peak_mib)


def a_run(stages: Sequence[Stage]) -> Scaled:
    return Scaled(Standing.of(1000), 1.0, list(stages), (0.0, 0.0))


STAGES = [
    a_stage(
        "start until the first new claim is Bound", cpu_s=4.0, rest_mib=90, peak_mib=100, seconds=8
    ),
    a_stage("a quiet minute", cpu_s=0.2, rest_mib=95, peak_mib=96),
    a_stage("1,000 claims on top: Bound", cpu_s=9.0, rest_mib=130, peak_mib=140),
    a_stage("one claim deleted until", cpu_s=0.1, rest_mib=95, peak_mib=96, seconds=1.5),
    a_stage("take-over by a warm standby", cpu_s=1.0, rest_mib=97, peak_mib=120, seconds=9),
    a_stage("a webhook replica, all cached", cpu_s=0.0, rest_mib=300, peak_mib=300),
    a_stage("the same replica, asked 500 times a second", cpu_s=9.0, rest_mib=310, peak_mib=310),
]


def test_the_costs_of_a_run_are_the_controllers_own(tmp_path: Path) -> None:
    cost.save(a_run(STAGES), tmp_path)

    (found,) = cost.read(tmp_path)
    assert (found.volumes, found.start_cpu_s, found.minute_cpu_s) == (1000, 4.0, 0.2)
    assert (found.rest_mib, found.peak_mib, found.minute_mib) == (95, 120, None)
    assert (found.burst_mib, found.webhook_mib) == (140, 300)


def test_the_seconds_of_start_take_over_and_deletion_are_told_by_size(tmp_path: Path) -> None:
    cost.save(a_run(STAGES), tmp_path)

    (found,) = cost.read(tmp_path)
    assert (found.start_s, found.take_over_s, found.deletion_s) == (8, 9, 1.5)
    assert "| one claim deleted until its volume is gone, s | 1.5 |" in cost.markdown([found])


def test_how_far_a_small_measure_is_off_its_line_is_told_in_its_unit() -> None:
    minutes = {1000: 0.1, 10_000: 0.2, 20_000: 0.7, 100_000: 0.5}
    costs = [Cost(n, "", 100 + n / 400, 400, 5.0, s) for n, s in minutes.items()]

    rows = cost.markdown(costs).splitlines()

    [minute] = [row for row in rows if row.startswith("| CPU of a quiet minute, s")]
    [rest] = [row for row in rows if row.startswith("| memory at rest, MiB")]
    assert minute.endswith(" s |")
    assert rest.endswith("% |")


def test_a_line_through_points_on_a_line_is_that_line() -> None:
    found = cost.fit([a_cost(n, 90 + 0.003 * n) for n in (1000, 10_000, 100_000)], "rest_mib")

    assert found is not None
    assert found.fixed == pytest.approx(90)
    assert found.per_volume == pytest.approx(0.003)
    assert found.off == pytest.approx(0, abs=1e-9)


def test_small_sizes_count_as_much_as_large_ones() -> None:
    found = cost.fit([a_cost(1000, 100), a_cost(2000, 100), a_cost(100_000, 1000)], "rest_mib")

    assert found is not None
    assert found.off < 0.05


def test_no_line_goes_through_one_size_or_what_nobody_could_tell() -> None:
    assert cost.fit([a_cost(1000, 100)], "rest_mib") is None
    unknown = [a_cost(1000, 100, None), a_cost(2000, 100, 1.0)]
    assert cost.fit(unknown, "minute_mib") is None


def test_the_command_makes_a_table_and_a_plot_of_what_is_there(tmp_path: Path) -> None:
    for stand in (1000, 10_000):
        run = a_run(STAGES)
        run.there = Standing.of(stand)
        cost.save(run, tmp_path)
    image = tmp_path / "plot.png"

    answer = CliRunner().invoke(cost.main, [str(tmp_path), "--image", str(image)])

    assert answer.exit_code == 0, answer.output
    assert "| what | 1,000 | 10,000 | fitted |" in answer.output
    assert "| memory at rest, MiB | 95.0 | 95.0 | 95 + 0 for 1,000 volumes |" in answer.output
    assert image.read_bytes().startswith(b"\x89PNG")
