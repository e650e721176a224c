"""Broken rules of ``probes/modifying.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    Mutant(
        "modify-large-gp2-to-gp3", "modifications._default_throughput", "return 250", "return 125"
    ),
    Mutant(
        "modify-answers-modifying",
        "modifications.modify_volume",
        "content = render_modification(modification, call.world.now_s())",
        "content = render_modification(modification, call.world.now_s()).replace('modifying', 'completed')",
    ),
    Mutant(
        "modify-size-at-optimizing",
        "modifications._reshape",
        "volume.size, volume.volume_type = target.size_gib, target.volume_type",
        "volume.volume_type = target.volume_type",
    ),
    off(
        "modify-one-at-a-time",
        "modifications._check_state",
        "latest is not None and latest.state in RUNNING",
    ),
    off("modify-never-shrinks", "modifications._target", "size_gib < now.size_gib"),
    Mutant(
        "modify-of-nothing-counts",
        "modifications.modify_volume",
        "_check_multi_attach(call",
        "if original == target:\n        raise invalid('nothing changes')\n    _check_multi_attach(call",
    ),
    off(
        "modify-names-something",
        "modifications.modify_volume",
        "not any(name in call.params.flat for name in _CHANGES)",
    ),
    off("modify-while-creating", "modifications._check_state", 'record.state != "available"'),
    off("never-modified", "modifications._by_id", "never"),
    Mutant(
        "never-modified-fails-all",
        "modifications._by_id",
        "if never:",
        "if never and len(found) == 1:",
    ),
    Mutant(
        "modify-four-in-a-day",
        "modifications._check_budget",
        "if len(recent) < settings.modification_budget:",
        "if True:",
    ),
    Mutant(
        "modify-shows-both-shapes",
        "render.modification",
        "{shape.size_gib}",
        "{item.target.size_gib}",
    ),
    Mutant(
        "modify-within-the-types-limits",
        "modifications._target",
        "limits.check_iops(kind, size_gib, iops if type_limits.max_iops else asked_iops, ceiling)",
        "pass",
    ),
    Mutant(
        "modify-gp2-to-gp3",
        "modifications._default_iops",
        'max(limits.TYPES["gp3"].min_iops, now.iops or 0)',
        "now.iops",
    ),
    Mutant(
        "modify-keeps-iops",
        "modifications._default_iops",
        "return now.iops\n",
        "return limits.TYPES[kind].min_iops\n",
    ),
    Mutant("modify-found-by-state", "modifications._FIELDS", "modification-state", ""),
    Mutant(
        "share-other-types",
        "modifications._check_multi_attach",
        "if target.multi_attach and not",
        "if False and not",
    ),
    Mutant(
        "shared-keeps-its-type",
        "modifications._check_multi_attach",
        "if original.multi_attach and call",
        "if False and call",
    ),
    off(
        "shared-switch-while-attached",
        "modifications._check_multi_attach",
        "record_of(volume).attachments",
    ),
    off("shared-io1-switch", "modifications._check_multi_attach", 'original.volume_type == "io1"'),
    Mutant(
        "shared-io1-modification",
        "modifications._check_multi_attach",
        "elif original.multi_attach and",
        "elif False and",
    ),
    Mutant(
        "modify-of-missing",
        "modifications.modify_volume",
        'volume = find_volume(call.backend, call.params.required("VolumeId"), call.world.now_s())',
        "volume = call.backend.volumes.get(call.params.required('VolumeId'))\n    if volume is None:\n        raise Ec2Error('InvalidVolumeID.NotFound', 'gone')",
    ),
    Mutant("modify-page-size", "listing._page_size", "<= listing.max_page:", "<= 1000:"),
    Mutant(
        "modify-shows-the-latest",
        "modifications.describe_volumes_modifications",
        "page, more = list_page(call, _LISTING)",
        "page, more = list_page(call, _LISTING)\n    page = [*page, *page]",
    ),
)
