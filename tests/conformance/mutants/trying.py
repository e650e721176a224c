"""Broken rules of ``probes/trying.py``."""

from tests.conformance.mutants.mutant import off

MUTANTS = (
    off("dry-run-of-changes", "modifications.modify_volume", 'call.params.boolean("DryRun")'),
)
