"""The strict EC2, each rule broken once: in which function, what stands there, and what instead.

Read by ``mutation``, which swaps the code of the function in place for the time of one run.
"""

from tests.conformance.mutants import (
    attaching,
    calling,
    copying,
    creating,
    describing,
    detaching,
    instances,
    limits,
    modifying,
    preparing,
    snapshots,
    tagging,
    tokens,
    trying,
)

MUTANTS = (
    *creating.MUTANTS,
    *limits.MUTANTS,
    *tokens.MUTANTS,
    *attaching.MUTANTS,
    *detaching.MUTANTS,
    *describing.MUTANTS,
    *tagging.MUTANTS,
    *modifying.MUTANTS,
    *snapshots.MUTANTS,
    *copying.MUTANTS,
    *preparing.MUTANTS,
    *instances.MUTANTS,
    *trying.MUTANTS,
    *calling.MUTANTS,
)
