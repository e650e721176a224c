"""What is listed of a run, and what happens if it cannot be listed."""

from typing import Any, cast

import pytest

from provisioner.conformance.ec2 import Ec2
from provisioner.conformance.probe import CannotRunError, RefusedError
from provisioner.conformance.sweep import things


class Throttled:
    """An EC2 that refuses the call of its number, counted from 1."""

    def __init__(self, refused: int) -> None:
        self._refused = refused
        self._calls = 0

    async def call(self, _operation: str, _wanted: dict[str, Any]) -> dict[str, Any]:
        self._calls += 1
        if self._calls == self._refused:
            raise RefusedError("RequestLimitExceeded", "Request limit exceeded.")
        return {}


@pytest.mark.parametrize("refused", [1, 2])
async def test_a_list_that_ec2_refuses_is_one_sentence_and_never_an_empty_list(refused: int):
    ec2 = cast("Ec2", Throttled(refused))

    with pytest.raises(CannotRunError, match=r"does not list what there is: .*Request limit"):
        [each async for each in things(ec2, "20261123-000000")]
