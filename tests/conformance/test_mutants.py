"""Each probe against the strict EC2, and against one in which its rule is broken."""

import json
import subprocess
import sys
from typing import Any

import pytest

from provisioner.conformance.probe import Probe
from provisioner.conformance.table import RULES
from tests.conformance.mutants import MUTANTS
from tests.conformance.observation import refusals
from tests.conformance.rule_tables import recorded

_NAMES = [rule.name for rule in RULES if isinstance(rule.probe, Probe)]

# Refusals that no probe can meet in us-east-1, by its rights or within its cost: the rule that says so.
_UNMET = {
    "attachments.attach_volume: Ec2Error 'IncorrectState' f\"Instance '{instance_id}' is not ": "attach-to-stopped-or-gone",
    "attachments.detach_volume: Ec2Error 'OperationNotPermitted' f\"Unable to detach root vol": "detach-of-root",
    "copies.copy_volumes: dry_run": "dry-run-of-changes",
    "copies._check_source: Ec2Error 'UnsupportedOperation' 'Volumes on Outposts cannot ": "copy-of-outpost",
    "fast_restores._asked: dry_run": "dry-run-of-changes",
    "fast_restores._enable: Ec2Error 'FastSnapshotRestoreLimitExceeded' f'The maximum of": "fast-restore-quota",
    "initialization._check_rate: Ec2Error 'VolumeInitializationRateLimitExceeded' f'The cumul": "restore-rate-of-the-region",
    "outposts.asked_outpost: combination f\"The Outpost '{arn}' is not in the zone '{zone}": "outpost-elsewhere",
    "outposts.check_same_outpost: Ec2Error 'UnsupportedOperation' f\"The volume '{volume.id}' a": "outpost-serves-its-own",
    "params.boolean: invalid f'Value ({other}) for parameter {name} is invalid.'": "flag-values",
    "quotas.check_new_volume: _over 'VolumeLimitExceeded' f\"volume count limit of {quotas[": "quota-codes",
    "quotas.check_modified_volume: _over 'VolumeModificationSizeLimitExceeded' f'{target.volume": "modify-quota",
    "quotas._check_kind: _over 'VolumeLimitExceeded' f'{kind} storage limit of {most}": "quota-codes",
    "quotas._check_kind: _over 'MaxIOPSLimitExceeded' f'{kind} IOPS limit of {most}'": "quota-codes",
    "snapshot_locks._asked: invalid f'CoolOffPeriod must be between 1 and {_MAX_COOL_OFF": "lock-cooling-off-hours",
    "snapshot_locks._expiration: invalid f'Value ({text}) for parameter expirationDate is inv": "lock-duration",
    "snapshot_locks._check_change: Ec2Error 'OperationNotPermitted' 'The lock of a snapshot in ": "lock-of-compliance",
    "snapshot_locks.unlock_snapshot: Ec2Error 'OperationNotPermitted' 'A snapshot in compliance m": "lock-of-compliance",
    "snapshots.create_snapshot: invalid f'Value ({outpost_arn}) for parameter outpostArn is ": "outpost-elsewhere",
    "snapshots._check_limits: Ec2Error 'ConcurrentSnapshotLimitExceeded' 'Maximum allowed ": "snapshot-quotas",
    "snapshots._check_limits: Ec2Error 'SnapshotLimitExceeded' 'The maximum number of EBS ": "snapshot-quotas",
    "snapshots._check_unused: Ec2Error 'InvalidSnapshot.InUse' f'The snapshot {snapshot.id": "snapshot-in-use",
    "specs.spec_of: combination 'Multi-attach is not supported for io1 volumes i": "multi-attach-io1-regions",
    "volumes.check_capacity: Ec2Error code _NO_CAPACITY.format(zone=zone) status": "no-capacity",
}


def _run(*arguments: str) -> Any:
    """In a process of its own: moto is patched for good."""
    command = [sys.executable, "-m", "tests.conformance.mutation", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def base() -> Any:
    """All probes against the strict EC2."""
    return _run("--base")


@pytest.fixture(scope="module")
def broken() -> Any:
    """Each probe against the strict EC2 in which its rule is broken."""
    return _run()


def test_each_probe_has_a_mutant():
    assert sorted(mutant.rule for mutant in MUTANTS) == sorted(_NAMES)


def test_the_strict_ec2_keeps_every_rule(base: Any):
    found = base["rules"]

    assert sorted(found) == sorted(_NAMES)
    assert {name: of for name, of in found.items() if of["own"][0] != "Confirmed"} == {}


def test_each_broken_rule_is_refuted_by_its_own_probe(broken: Any):
    assert sorted(broken) == sorted(_NAMES)
    missed = {name: of["own"] for name, of in broken.items() if of["own"][0] != "Refuted"}
    assert missed == {}


@pytest.mark.parametrize("run", ["base", "broken"])
def test_no_probe_uses_more_than_the_plan_counts(run: str, request: pytest.FixtureRequest):
    """Neither volumes nor rights, even where EC2 makes what it should refuse."""
    found = request.getfixturevalue(run)
    over = {name: of["excess"] for name, of in found.get("rules", found).items() if of["excess"]}
    assert over == {}


def test_every_refusal_of_the_strict_ec2_is_met_by_a_probe_or_its_rule_has_none(base: Any):
    assert set(base["unmet"]) == _UNMET.keys()
    assert set(_UNMET.values()) <= {rule.name for rule in RULES}
    assert _UNMET.keys() <= {each.name for each in refusals()}


def test_what_is_recorded_for_the_documentation_is_of_these_rules():
    assert sorted(recorded()) == sorted(_NAMES)


@pytest.mark.parametrize(
    "rule",
    [
        "token-again",
        "attach-excludes-other-instances",
        "attach-in-another-zone",
        "create-answers-creating",
        "modify-four-in-a-day",
        "describe-pages",
    ],
)
def test_plain_moto_breaks_what_the_product_rests_on_most(rule: str):
    assert recorded()[rule]["plain"] == "Refuted"
