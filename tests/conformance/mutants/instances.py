"""Broken rules of ``probes/instances.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    Mutant(
        "instances-all-missing-named",
        "instance_listing._instances_by_id",
        "raise instances_not_found(absent)",
        "raise instances_not_found(absent[:1])",
    ),
    Mutant(
        "instances-only-missing-named",
        "instance_listing._instances_by_id",
        "raise instances_not_found(absent)",
        "raise instances_not_found(instance_ids)",
    ),
    Mutant(
        "instances-pages-of-ids",
        "listing._page_size",
        "if by_id:",
        "if by_id and listing.ids != 'InstanceId':",
    ),
    Mutant("instances-by-filter", "instance_listing.INSTANCE_FIELDS", "instance-state-name", ""),
    Mutant(
        "types-missing",
        "instance_listing._types_by_name",
        '"InvalidInstanceType"',
        '"InvalidParameterValue"',
    ),
    off("types-hundred-names", "instance_listing._types_by_name", "len(names) > _MOST_TYPES"),
    Mutant(
        "types-in-pages",
        "listing._cut",
        "if page_size is None or",
        "if any('.' in key for key in keys) or page_size is None or",
    ),
    Mutant(
        "types-show-their-limits",
        "instance_listing._type",
        "return motos.InstanceType(name) if",
        "return {k: v for k, v in motos.InstanceType(name).items() if k != 'EbsInfo'} if",
    ),
)
