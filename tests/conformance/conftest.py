"""The account that ``conformance aws`` runs in."""

from pathlib import Path
from typing import Any

import pytest

from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.conformance.account_world import Account, Listener


@pytest.fixture
def owned(
    strict_ec2: StrictEc2, strict_client: Any, tmp_path: Path, aws_environment: None
) -> Account:
    """An account with other people's volumes."""
    made = Account(strict_client, strict_ec2.endpoint, tmp_path / "state")
    made.settle_strangers()
    return made


@pytest.fixture
def listener() -> Listener:
    return Listener()
