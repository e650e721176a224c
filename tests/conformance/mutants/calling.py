"""Broken rules of ``probes/calling.py``."""

from tests.conformance.mutants.mutant import Mutant

MUTANTS = (
    Mutant("throttled-code", "errors.throttled", '"RequestLimitExceeded"', '"Unavailable"'),
    Mutant("throttle-of-creates", "throttle.DOCUMENTED", "CreateVolume", "double"),
    Mutant("throttle-of-attaches", "throttle.DOCUMENTED", "*", "double"),
    Mutant("throttle-refills", "throttle.DOCUMENTED", "*", "slow"),
    Mutant("throttle-of-tags", "throttle.DOCUMENTED", "CreateTags", "double"),
    Mutant("throttle-of-filtered-reads", "throttle.DOCUMENTED", "Describe*", "double"),
    Mutant(
        "throttle-of-reads-by-id", "throttle.DOCUMENTED", "DescribeVolumes:unfiltered", "double"
    ),
    Mutant(
        "throttle-by-action",
        "throttle.Throttle.admit",
        "bucket = self._buckets.setdefault((scope, name)",
        "bucket = self._buckets.setdefault((scope, name if action.startswith(('Create', 'Describe')) else '*')",
    ),
)
