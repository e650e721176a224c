"""What a user reads when a quota is full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.quota import InUse, name_of, sentence
from provisioner.model.volume_type import VOLUME_TYPES

STORAGE = "You have exceeded your maximum gp3 storage limit of 50 TiB in this region."
USED = InUse(volumes=812, gib=51_100, iops=98_000)


@pytest.mark.parametrize(
    ("code", "text", "volume_type", "name"),
    [
        (
            "VolumeLimitExceeded",
            STORAGE,
            "gp3",
            "Storage for General Purpose SSD (gp3) volumes, in TiB (L-7A658B76)",
        ),
        (
            "MaxIOPSLimitExceeded",
            "",
            "io2",
            "IOPS for Provisioned IOPS SSD (io2) volumes (L-8D977E7E)",
        ),
        ("VolumeLimitExceeded", "You have reached the limit of 5000 volumes", "gp3", None),
        ("MaxIOPSLimitExceeded", "", "gp3", None),
        ("SnapshotLimitExceeded", STORAGE, "gp3", None),
    ],
)
def test_a_quota_is_named_as_service_quotas_names_it(
    code: str, text: str, volume_type: str, name: str | None
):
    assert name_of(code, text, volume_type) == name


@pytest.mark.parametrize("volume_type", VOLUME_TYPES)
def test_every_type_has_a_quota_for_storage(volume_type: str):
    name = name_of("VolumeLimitExceeded", STORAGE, volume_type)

    assert name is not None
    assert f"({volume_type})" in name


def test_the_quota_and_the_amount_in_use_are_told():
    assert sentence("VolumeLimitExceeded", STORAGE, "gp3", USED) == (
        "the quota is 'Storage for General Purpose SSD (gp3) volumes, in TiB (L-7A658B76)', "
        "812 gp3 volumes of this account and region use 49.90 TiB"
    )
    assert sentence("MaxIOPSLimitExceeded", "", "io1", InUse(2, 8, 300_000)) == (
        "the quota is 'IOPS for Provisioned IOPS SSD (io1) volumes (L-B3A130E6)', "
        "2 io1 volumes of this account and region use 8 GiB and 300000 IOPS"
    )


@given(code=st.text(), text=st.text(), volume_type=st.text(), used=st.none() | st.just(USED))
def test_what_is_not_known_is_left_out(code: str, text: str, volume_type: str, used: InUse | None):
    told = sentence(code, text, volume_type, used)

    assert ("812" in told) >= (used is not None)
    assert "None" not in told.replace(volume_type, "")
