"""What may not be as it was meant with a StorageClass that works."""

from collections.abc import Collection, Iterator

from provisioner.decide import class_tags, class_zones
from provisioner.decide.class_effects import refusal, refusal_of_block
from provisioner.decide.class_zones import Located
from provisioner.decide.storage_class import ReadClass
from provisioner.model import parameter_values as values
from provisioner.model import zone as zones
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.parameter_table import SECRET_KEYS, TABLE
from provisioner.model.parameters import spelt
from provisioner.model.sentences import listed
from provisioner.model.storage_class import WAIT_FOR_FIRST_CONSUMER
from provisioner.model.volume_type import VOLUME_TYPES

_BOOLEANS = frozenset(row.name.lower() for row in TABLE if row.parser is values.boolean)


def doubts(
    read_class: ReadClass, nodes: Collection[Located] | None, *, default_file_system: str
) -> Iterator[str]:
    """Each doubt, a sentence without its subject's name.

    Args:
        read_class: a class of which some claim can get a volume.
        nodes: all of the cluster, None if they are not known.
        default_file_system: the controller's, for classes that name none.
    """
    yield from _about_binding(read_class, nodes)
    yield from _about_empty_zones(read_class, nodes)
    yield from _about_maxima(read_class)
    yield from _about_no_effect(read_class)
    yield from _about_secrets(read_class)
    yield from _about_modes(read_class, default_file_system)
    yield from class_tags.doubts(read_class)
    yield from _about_the_stock_driver(read_class)


def _about_binding(read_class: ReadClass, nodes: Collection[Located] | None) -> Iterator[str]:
    if read_class.storage_class.waits_for_consumer:
        return
    allowed = class_zones.allowed(read_class, nodes)
    remedy = f"volumeBindingMode {WAIT_FOR_FIRST_CONSUMER} makes them where they run"
    if allowed is None and nodes is None:
        yield f"it binds at once, so volumes may be made where their pods cannot run; {remedy}"
        return
    registered = class_zones.zones_of(n for n in nodes or () if n.has_driver)
    possible = class_zones.zones_at_once(waits=False, allowed=allowed, registered=registered)
    if possible:
        where = listed(possible)
        yield f"it binds at once, so volumes may be made in {where} whatever pods need; {remedy}"


def _about_empty_zones(read_class: ReadClass, nodes: Collection[Located] | None) -> Iterator[str]:
    inhabited = class_zones.zones_of(nodes or ())
    empty = class_zones.empty_zones(class_zones.allowed(read_class, nodes), inhabited)
    if not class_zones.zone_names(nodes):  # nodes without that label are no proof
        empty -= zones.zone_ids(read_class.allowed_topologies)
    if empty:
        yield (
            f"allowedTopologies name {listed(empty, 'and')}, where no node is; is it misspelt? "
            f"Nodes are in {listed(inhabited, 'and')}"
        )


def _about_maxima(read_class: ReadClass) -> Iterator[str]:
    """AWS raises its limits, so ours are told of, and EC2 is asked."""
    wanted = read_class.parameters
    limits = VOLUME_TYPES[wanted.volume_type]
    for asked, bounds, unit in (
        (wanted.iops, limits.iops, "IOPS"),
        (wanted.throughput_mibps, limits.throughput_mibps, "MiB/s"),
    ):
        if asked is not None and bounds is not None and asked > bounds[1]:
            yield (
                f"it asks for {asked:,} {unit}, and AWS documents at most {bounds[1]:,} for "
                f"{wanted.volume_type}; volumes may get less, or be refused by EC2"
            )


def _about_no_effect(read_class: ReadClass) -> Iterator[str]:
    wanted = read_class.parameters
    if wanted.iops_per_gib is None:
        if wanted.iops is None and wanted.raises_iops_to_minimum and not read_class.is_in_tree:
            yield "allowAutoIOPSPerGBIncrease has no effect without iops or iopsPerGB"
        if wanted.iops_follow_growth:
            yield "allowAutoIOPSIncreaseOnModify has no effect without iopsPerGB"
        names = [name.lower() for name in read_class.storage_class.parameters or ()]
        has_none = VOLUME_TYPES[wanted.volume_type].iops is None
        if read_class.is_in_tree and has_none and "iopspergb" in names:
            yield (
                f"iopsPerGB has no effect on volumes of type {wanted.volume_type}; the in-tree "
                "plugin ignored it, too"
            )
    if read_class.is_in_tree and (lost := read_class.parameters.attributes()):
        yield (
            f"{spelt(lost)} cannot take effect: persistent volumes in the in-tree plugin's form "
            f"have no place for that; those of a class with provisioner {EBS_DRIVER} have"
        )


def _about_secrets(read_class: ReadClass) -> Iterator[str]:
    named = SECRET_KEYS & (read_class.storage_class.parameters or {}).keys()
    if named:
        yield (
            f"{listed(named, 'and')} have no effect: EBS needs no secret, so none is read or "
            "written to persistent volumes"
        )


def _about_modes(read_class: ReadClass, default_file_system: str) -> Iterator[str]:
    if (why := refusal_of_block(read_class)) is not None:
        yield f"claims with volumeMode Block are refused: {why}"
    if (why := refusal(read_class, default_file_system)) is not None:
        yield f"claims with a file system are refused: {why}"


def _about_the_stock_driver(read_class: ReadClass) -> Iterator[str]:
    """What aws-ebs-csi-driver v1.64 would read otherwise: it may lead again, or before us."""
    for name, text in (read_class.storage_class.parameters or {}).items():
        key = name.lower()
        if key in _BOOLEANS and text != "true" and values.boolean(text):
            yield f'aws-ebs-csi-driver takes {name} {text!r} for false; write "true"'
    if read_class.parameters.initialization_rate_mibps is not None:
        yield (
            "with volumeInitializationRate, EC2 refuses what aws-ebs-csi-driver asks for volumes "
            "that are not made of a snapshot"
        )
