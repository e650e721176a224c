import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.serving.server import read_timeout_s


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("5s", 5.0),
        ("1s", 1.0),
        ("0s", 0.0),
        ("1m0s", 30.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("1s500ms", 1.5),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("999999999h", 30.0),
    ],
)
def test_reads_gos_durations(timeout: str, seconds: float) -> None:
    assert read_timeout_s(timeout) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "timeout", ["", "5", "s", "-5s", "+5s", "5 s", "5s ", "nan", "infs", "1e3s", "٣s", "5s\n", ".s"]
)
def test_what_is_no_duration_means_the_default(timeout: str) -> None:
    assert read_timeout_s(timeout) == 10.0


@given(st.text())
def test_is_within_bounds_for_any_text(timeout: str) -> None:
    assert 0.0 <= read_timeout_s(timeout) <= 30.0
