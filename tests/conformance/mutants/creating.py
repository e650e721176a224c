"""Broken rules of ``probes/creating.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    Mutant(
        "create-answers-creating", "volumes.make_volume", 'state="creating"', 'state="available"'
    ),
    Mutant(
        "create-needs-a-zone",
        "volumes._zone",
        'if not name and not zone_id:\n        raise missing("zone")',
        "name = name or call.backend.region_name + 'a'",
    ),
    Mutant(
        "create-in-unknown-zone",
        "volumes._zone",
        '"InvalidZone.NotFound"',
        '"InvalidParameterValue"',
    ),
    off("create-names-a-zone-once", "volumes._zone", "name and zone_id"),
    Mutant(
        "create-by-zone-id",
        "volumes._zone",
        "(zone_id and zone.zone_id == zone_id)",
        "(zone_id and zone.zone_id == 'use1-az1')",
    ),
    Mutant(
        "dry-run-validates",
        "volumes.create_volume",
        "tags = specified_tags",
        "if call.params.boolean('DryRun'):\n        raise dry_run()\n    tags = specified_tags",
    ),
    off("dry-run-makes-nothing", "volumes.create_volume", 'call.params.boolean("DryRun")'),
    Mutant(
        "create-needs-a-size-or-snapshot",
        "specs._size_gib",
        'raise missing("size/snapshot")',
        "return 100",
    ),
    Mutant(
        "create-size-is-a-whole-number",
        "params.Params.integer",
        "return int(value)",
        "return int(float(value))",
    ),
    Mutant(
        "create-of-unknown-type",
        "limits.check_type",
        '"UnknownVolumeType"',
        '"InvalidParameterValue"',
    ),
    Mutant("create-default-type", "specs.spec_of", '"gp2"', '"gp3"'),
    Mutant("gp2-iops", "limits.default_iops", "3 * size_gib", "4 * size_gib"),
    Mutant("gp3-defaults", "limits.default_iops", "return 3000", "return None"),
    off("multi-attach-types", "specs.spec_of", "multi_attach and not type_limits.multi_attach"),
    Mutant("multi-attach-io1-regions", "specs.spec_of", "call.scope[1] not in", "call.scope[1] in"),
    Mutant(
        "iops-ceiling-text",
        "limits.check_iops",
        "is too high; maximum is {most}",
        "is beyond {most}",
    ),
    Mutant(
        "iops-ceiling-text-of-io2",
        "limits.check_iops",
        'if volume_type == "io2" and ceiling is None:\n            raise combination(_IO2_TOO_MUCH)',
        "if volume_type == \"io2\" and ceiling is None:\n            raise combination('too much')",
    ),
    Mutant(
        "initialization-rate-needs-a-snapshot",
        "initialization.restored",
        "if rate is not None:\n            raise combination(",
        "if False:\n            raise combination(",
    ),
    off("key-needs-encryption", "encryption.encryption_of", "named and not encrypted"),
    Mutant(
        "unusable-key-vanishes",
        "encryption.encryption_of",
        "key_is_unusable=arn is None",
        "key_is_unusable=False",
    ),
    Mutant(
        "outpost-exists",
        "outposts.asked_outpost",
        'if outpost is None:\n        raise invalid(f"Value ({arn}) for parameter outpostArn is invalid.")',
        "if outpost is None:\n        return ''",
    ),
)
