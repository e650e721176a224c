"""What is in use of each quota, also of those whose limit is not known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provisioner.inspect.quota.quota_words import HEADINGS, cells
from provisioner.inspect.reading.quota_rules import Counted, Limit, uses
from provisioner.model.quota import IOPS_CODES, SNAPSHOTS_CODE, STORAGE_CODES, InUse

GP3, IO2, IO2_IOPS = STORAGE_CODES["gp3"], STORAGE_CODES["io2"], IOPS_CODES["io2"]


def test_the_quota_nearest_to_its_end_comes_first():
    in_use = {"gp3": InUse(3, 512, 9_000), "io2": InUse(1, 1_024, 90_000)}
    values = {GP3: 50.0, IO2: 20.0, IO2_IOPS: 100_000.0}

    found = uses(in_use, {code: Limit(code, value) for code, value in values.items()})

    assert [cells(each) for each in found] == [
        ("io2", "IOPS", IO2_IOPS, "1", "90,000 IOPS", "100,000 IOPS", "90%"),
        ("io2", "storage", IO2, "1", "1.00 TiB", "20 TiB", "5%"),
        ("gp3", "storage", GP3, "3", "0.50 TiB", "50 TiB", "1%"),
    ]


def test_a_limit_that_is_not_known_is_a_question_mark():
    (found,) = uses({"gp3": InUse(3, 512, 9_000)}, {})

    assert cells(found)[-2:] == ("?", "?")


def test_snapshots_are_told_as_what_was_counted():
    limits = {SNAPSHOTS_CODE: Limit("Snapshots per Region", 100_000.0)}

    (all_of_them,) = uses({}, limits, Counted(number=1_200, is_all=True))
    (some,) = uses({}, limits, Counted(number=10_000, is_all=False))

    assert cells(all_of_them) == (
        *("snapshots", "number", SNAPSHOTS_CODE, "1200", "1,200 snapshots"),
        *("100,000 snapshots", "1%"),
    )
    assert cells(some)[3:] == ("10000+", "10,000+ snapshots", "100,000 snapshots", "10%+")


@given(
    st.dictionaries(
        st.sampled_from(sorted(STORAGE_CODES)),
        st.builds(InUse, *(st.integers(0, 10**9) for _ in range(3))),
    ),
    st.dictionaries(
        st.sampled_from([GP3, IO2, IO2_IOPS]), st.builds(Limit, st.text(), st.floats(0, 1e6))
    ),
)
def test_each_counted_type_has_its_quotas_once(in_use: dict[str, InUse], limits: dict[str, Limit]):
    found = uses(in_use, limits)

    codes = {STORAGE_CODES[each] for each in in_use}
    codes |= {IOPS_CODES[each] for each in in_use if each in IOPS_CODES}
    assert sorted(each.code for each in found) == sorted(codes)
    assert all(each.percent is None or each.percent >= 0 for each in found)
    assert all(len(cells(each)) == len(HEADINGS) for each in found)
