"""Broken rules of ``probes/copying.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    Mutant(
        "copy-answers-creating",
        "copies.copy_volumes",
        "content = render_volume(volume)",
        "content = render_volume(volume).replace('creating', 'available')",
    ),
    Mutant(
        "copy-default-type",
        "specs.spec_of",
        'params.get("VolumeType") or "gp2"',
        'params.get("VolumeType") or ("gp3" if "SourceVolumeId" in params.flat else "gp2")',
    ),
    Mutant(
        "copy-leaves-tags",
        "copies.copy_volumes",
        "volume = make_volume(call, source.zone, spec, encryption, tags)",
        "volume = make_volume(call, source.zone, spec, encryption, {**call.backend.tags[source.id], **tags})",
    ),
    Mutant(
        "copy-shows-its-source",
        "copies.copy_volumes",
        "record.source_volume_id, record.initialization = source_id, copied(call)",
        "record.initialization = copied(call)",
    ),
    Mutant(
        "copy-not-smaller",
        "specs._size_gib",
        "if size_gib is not None and size_gib < least_gib:",
        "if 'snapshot' in name and size_gib is not None and size_gib < least_gib:",
    ),
    off("copy-of-creating", "copies._check_source", 'record.state != "available"'),
    Mutant(
        "copy-of-modified",
        "copies._check_source",
        "if record.modification is not None and",
        "if False and",
    ),
    off("copy-of-new-copy", "copies._check_source", "_is_being_copied(source, now_s)"),
    off(
        "copy-one-of-a-source",
        "copies._check_limits",
        "any(record_of(each).source_volume_id == source_id for each in running)",
    ),
    off("copy-five-in-a-region", "copies._check_limits", "len(running) >= most"),
    Mutant(
        "copy-stays-encrypted",
        "copies.copy_volumes",
        "encryption_of(call, source)",
        "encryption_of(call)",
    ),
    Mutant(
        "copy-of-missing",
        "copies.copy_volumes",
        "source = find_volume(call.backend, source_id, call.world.now_s())",
        "source = call.backend.volumes.get(source_id)\n    if source is None:\n        raise Ec2Error('InvalidVolumeID.NotFound', 'gone')",
    ),
)
