"""The account that ``conformance aws`` runs in."""

from pathlib import Path
from typing import Any

import boto3
import pytest

from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from tests.conformance.account_world import Account, Listener


class OneSession(boto3.session.Session):
    """Makes each client once: it has to read EC2's service model and define 800 methods.

    A client that was closed opens connections again.
    """

    def __init__(self) -> None:
        super().__init__(
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        self._made: dict[tuple[Any, ...], Any] = {}

    def client(self, *place: Any, **asked: Any) -> Any:
        key = *place, *sorted((name, asked[name]) for name in asked.keys() - {"config"})
        if key not in self._made:
            self._made[key] = super().client(*place, **asked)
        return self._made[key]


@pytest.fixture(scope="session")
def aws_session() -> boto3.session.Session:
    return OneSession()


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
