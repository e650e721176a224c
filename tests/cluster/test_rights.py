"""The rights that the manifests grant against those used, by the API servers' audit logs.

``make test`` runs this file last and alone, with ``--used-rights``: where the sessions before it
have written down what all other tests made the controller do.
"""

from pathlib import Path

import pytest

from provisioner.sandbox.installation import MANIFESTS
from tests.cluster import audit
from tests.cluster.audit import CONTROLLER, WEBHOOK


@pytest.mark.parametrize(
    ("account", "rbac"),
    [
        (CONTROLLER, MANIFESTS / "rbac.yaml"),
        (CONTROLLER, MANIFESTS / "release-dead-nodes" / "rbac.yaml"),
        (CONTROLLER, MANIFESTS / "volume-moves" / "rbac.yaml"),
        (WEBHOOK, MANIFESTS / "webhook" / "rbac.yaml"),
        (WEBHOOK, MANIFESTS / "webhook-volume-moves" / "rbac.yaml"),
    ],
    ids=["controller", "dead nodes", "volume moves", "webhook", "the webhook's volume moves"],
)
def test_every_right_that_is_granted_is_used(everybodys: list[audit.Use], account: str, rbac: Path):
    used = {right for use in everybodys if use.account == account for right in use.used}
    assert audit.granted(rbac) - used == set()


@pytest.mark.parametrize("account", audit.ACCOUNTS)
def test_no_test_needs_what_is_forbidden(everybodys: list[audit.Use], account: str):
    uses = [use for use in everybodys if use.account == account]
    assert uses, "no session has told what it used"

    assert audit.refused(uses) == set()


@pytest.fixture
def everybodys(pytestconfig: pytest.Config) -> list[audit.Use]:
    """What the sessions before this one have used."""
    folder = pytestconfig.getoption("--used-rights")
    if folder is None:
        pytest.skip("only all tests together can tell: make test")
    return audit.kept(folder)
