import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.taint import CORDONED, Taint, Toleration, keeps_away

GPU = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration(key="gpu", operator="Equal", value="yes", effect="NoSchedule"),
        Toleration(key="gpu", value="yes"),
        Toleration(key="gpu", operator="Exists"),
        Toleration(operator="Exists"),
        Toleration(operator="Exists", effect="NoSchedule"),
    ],
)
def test_what_is_tolerated_keeps_nobody_away(toleration):
    assert keeps_away([GPU], [toleration]) is None


@pytest.mark.parametrize(
    "tolerations",
    [
        [],
        [Toleration(key="gpu", value="no")],
        [Toleration(key="gpu")],
        [Toleration(key="cpu", operator="Exists")],
        [Toleration(key="gpu", operator="Exists", effect="NoExecute")],
        [Toleration(key="gpu", operator="Gt", value="yes")],
        [Toleration(value="yes")],
    ],
)
def test_what_is_not_tolerated_keeps_away(tolerations):
    assert [each.covers(GPU) for each in tolerations] == [False] * len(tolerations)
    assert keeps_away([GPU], tolerations) == GPU


def test_each_taint_has_to_be_tolerated_by_one_toleration():
    both = [Toleration(key="gpu", operator="Exists"), Toleration(key="spot", operator="Exists")]
    spot = Taint(key="spot", effect="NoExecute")

    assert keeps_away([GPU, spot], both) is None
    assert keeps_away([GPU, spot], both[:1]) == spot


def test_a_taint_that_is_only_a_preference_keeps_nobody_away():
    assert keeps_away([Taint(key="spot", effect="PreferNoSchedule")], []) is None


TEXT = st.sampled_from(["", "a", "b", "gpu", "NoSchedule", "NoExecute", "Exists", "Equal"])
TAINTS = st.builds(Taint, key=TEXT, value=TEXT, effect=TEXT)
TOLERATIONS = st.builds(Toleration, key=TEXT, operator=TEXT, value=TEXT, effect=TEXT)


@given(st.lists(TAINTS), st.lists(TOLERATIONS))
def test_who_tolerates_everything_goes_everywhere_and_one_more_toleration_never_hinders(
    taints, tolerations
):
    everything = Toleration(operator="Exists")

    assert keeps_away([*taints, CORDONED], [*tolerations, everything]) is None
    if keeps_away(taints, []) is None:
        assert keeps_away(taints, tolerations) is None
