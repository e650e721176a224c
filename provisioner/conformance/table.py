"""All rules, in the order of the documentation."""

from collections.abc import Mapping

from provisioner.conformance.probes import (
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
from provisioner.conformance.rule import Rule

SUBJECTS: Mapping[str, tuple[Rule, ...]] = {
    "Volumes": creating.RULES,
    "Sizes, IOPS, throughput": limits.RULES,
    "Client tokens": tokens.RULES,
    "Attaching": attaching.RULES,
    "Detaching and deleting": detaching.RULES,
    "Describing": describing.RULES,
    "Tags": tagging.RULES,
    "Modifying": modifying.RULES,
    "Snapshots": snapshots.RULES,
    "Copies": copying.RULES,
    "Fast restores and locks": preparing.RULES,
    "Instances": instances.RULES,
    "Calls": (*trying.RULES, *calling.RULES),
}
RULES: tuple[Rule, ...] = tuple(rule for rules in SUBJECTS.values() for rule in rules)
