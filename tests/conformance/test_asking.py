"""What probes conclude where DryRun is ignored."""

from typing import Any

import pytest

from provisioner.conformance.lab import Lab, Place
from provisioner.conformance.probe import CannotRunError
from provisioner.conformance.probes.asking import try_accepted, try_refused


class IgnoresDryRun:
    """Makes whatever it is asked for; its own diary."""

    async def call(self, operation: str, params: Any, *, again: bool) -> dict[str, Any]:
        assert (operation, params["DryRun"], again) == ("create_volume", True, True)
        return {"VolumeId": "vol-01234567"}

    async def undisturbed(self, work: Any) -> Any:
        return await work

    async def making(self, kind: str, operation: str) -> int:
        return 1

    async def made(self, number: int, ids: Any) -> None:
        assert ids == ["vol-01234567"]

    def is_ours(self, each: str) -> bool:
        return each == "vol-01234567"


async def test_a_try_that_makes_a_volume_shows_nothing():
    ec2 = IgnoresDryRun()
    lab = Lab(Place("run-1", "us-east-1", "us-east-1a", ("us-east-1a",)), ec2, ec2)

    with pytest.raises(CannotRunError, match="DryRun made a volume here"):
        await try_accepted(lab, Size=65_536)
    with pytest.raises(CannotRunError, match="DryRun made a volume here"):
        await try_refused(lab, "InvalidParameterValue", Size=65_537)
