"""Broken rules of ``probes/tagging.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    off("tags-at-creation", "volumes.make_volume", "tags"),
    off("tags-reserved", "tags.check_tags", 'key.lower().startswith("aws:")'),
    Mutant("tags-fifty", "tags.check_tags", "check_count(len(checked))", "pass"),
    Mutant(
        "tags-refused-make-nothing",
        "volumes.create_volume",
        'tags = specified_tags(call, "volume")',
        "tags = {}",
    ),
    Mutant("tags-key-length", "tags.check_tags", "len(key) <= MAX_KEY_LENGTH", "len(key) <= 1000"),
    Mutant("tags-value-length", "tags.check_tags", "> MAX_VALUE_LENGTH", "> 1000"),
    off("tags-key-twice", "tags.check_tags", "key in checked"),
    off("tags-of-another-kind", "tags.specified_tags", "given is not None and given != kind"),
    Mutant(
        "tags-later",
        "tags.create_tags",
        "call.backend.tags[resource_id].update(tags)",
        "call.backend.tags[resource_id] = dict(tags)",
    ),
    Mutant(
        "tags-later-all-or-none",
        "tags._resources",
        "_check_exists(call, resource_id)",
        "_check_exists(call, resource_id) if resource_id in call.backend.volumes else None",
    ),
    Mutant(
        "tags-later-fifty",
        "tags.create_tags",
        "check_count(len(there.keys() | tags.keys()))",
        "check_count(len(tags))",
    ),
    off("tags-thousand-resources", "tags._resources", "len(resource_ids) > MAX_RESOURCES"),
    Mutant("tags-on-no-id", "tags._check_exists", '"InvalidID"', '"InvalidParameterValue"'),
    off("tags-none", "tags.create_tags", "not tags"),
    Mutant(
        "tags-deleted-by-value", "tags.delete_tags", "value is None or value == there[key]", "True"
    ),
)
