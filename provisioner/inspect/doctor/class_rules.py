"""Classes: those that cannot work, the default one, and claims of none; the snapshot kinds."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from provisioner.classes.volume_attributes_class_rules import parse as read_attributes
from provisioner.inspect.classes import check_rules as class_check
from provisioner.inspect.classes.check_rules import NodeZone
from provisioner.inspect.doctor.check_rules import (
    Finding,
    Rule,
    Verdict,
    judged,
    ok,
    skipped,
    some,
    unknown,
)
from provisioner.inspect.doctor.evidence_rules import Evidence
from provisioner.model.claim import Claim
from provisioner.model.persistent_volume import PROVISIONED_BY

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_OLD_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"
SNAPSHOT_CRDS = tuple(
    f"{plural}.snapshot.storage.k8s.io"
    for plural in ("volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses")
)
# Name of the lease of snapshot-controller v8 (external-snapshotter cmd/snapshot-controller, read
# 2026-11-23).
SNAPSHOT_LEASE = "snapshot-controller-leader"
_WAITING = timedelta(minutes=1)


def _classes(seen: Evidence) -> Finding:
    classes = [each for each in seen.cluster.classes if each.is_of(seen.driver)]
    if not classes:
        return skipped(f"no StorageClass has the provisioner {seen.driver}")
    zones = _zones(seen)
    failures, doubts = [], []
    for each in classes:
        found = class_check.findings(each, zones)
        failures += [f"StorageClass {each.name}: {why}" for why in found.impossible]
        if not found.works and not found.impossible:
            failures += [f"StorageClass {each.name}: {why}" for why in found.doubts]
        elif found.works:
            doubts += [f"StorageClass {each.name}: {why}" for why in found.doubts]
    remedy = "ebs-provisioner class check NAME says what each parameter does"
    if failures:
        return Finding(Verdict.FAILED, some([*failures, *doubts]), remedy)
    names = ", ".join(sorted(each.name for each in classes))
    return judged(doubts, f"{names}: nothing is wrong", remedy, worst=Verdict.WARNING)


def _zones(seen: Evidence) -> list[NodeZone] | None:
    if "nodes" in seen.gaps or "csinodes" in seen.gaps:
        return None
    registered = {each.name for each in seen.cluster.csi_nodes if each.driver(seen.driver)}
    return [
        class_check.node_zone(node.labels, has_driver=node.name in registered)
        for node in seen.cluster.nodes
    ]


def _attributes_classes(seen: Evidence) -> Finding:
    classes = [each for each in seen.cluster.attributes_classes if each.driver_name == seen.driver]
    if not classes:
        return skipped(f"no VolumeAttributesClass has the driver {seen.driver}")
    problems = []
    for each in classes:
        try:
            read_attributes(each.parameters or {})
        except ValueError as error:
            problems.append(f"VolumeAttributesClass {each.name}: {error}")
    return judged(
        problems,
        f"{len(classes)} can be read",
        "the parameters cannot be changed: create another class, and name it in the claims",
    )


def _is_default(annotations: Mapping[str, str]) -> bool:
    return "true" in {annotations.get(DEFAULT_CLASS), annotations.get(_OLD_DEFAULT_CLASS)}


def _default_class(seen: Evidence) -> Finding:
    defaults = sorted(each.name for each in seen.cluster.classes if _is_default(each.annotations))
    if len(defaults) > 1:
        return Finding(
            Verdict.WARNING,
            f"StorageClasses {', '.join(defaults)} are all marked as default: claims without a "
            "class get the newest",
            f"remove the annotation {DEFAULT_CLASS} from all but one",
        )
    waiting = [each.key for each in _pending(seen) if each.spec.storage_class_name is None]
    if not defaults and waiting:
        return Finding(
            Verdict.WARNING,
            f"no StorageClass is the default, and claims without a class wait: {some(waiting)}",
            f"kubectl annotate --overwrite storageclass NAME {DEFAULT_CLASS}=true, or name a class "
            "in them",
        )
    return ok(f"StorageClass {defaults[0]}" if defaults else "none; every claim names its class")


def _pending(seen: Evidence) -> list[Claim]:
    return [each for each in seen.cluster.claims if not each.spec.volume_name and not each.deleting]


def _claims_of_no_class(seen: Evidence) -> Finding:
    by_hand = {
        each.spec.storage_class_name
        for each in seen.cluster.volumes
        if PROVISIONED_BY not in each.annotations
    }
    known = {each.name for each in seen.cluster.classes} | by_hand
    problems = [
        f"PersistentVolumeClaim {each.key} names StorageClass {each.class_name}, which does not "
        "exist"
        for each in _pending(seen)
        if each.class_name and each.class_name not in known
    ]
    remedy = (
        "create the class again under this name, or delete the claim and name another class; for a "
        "volume made by hand, create its PersistentVolume with this storageClassName"
    )
    return judged(problems, "all of them exist", remedy)


def _snapshot_crds(seen: Evidence) -> Finding:
    found = seen.cluster.custom_resources
    waiting = [each.key for each in _pending(seen) if each.source and each.source.is_snapshot]
    if not found and waiting:
        return Finding(
            Verdict.FAILED,
            "the snapshot CRDs are not installed, and PersistentVolumeClaims wait for a "
            f"VolumeSnapshot: {some(waiting)}",
            "install the CRDs of external-snapshotter v8 and its snapshot-controller "
            "(docs/install.md), or create the claims again without a data source",
        )
    if not found:
        return skipped("the snapshot CRDs are not installed, so there are no VolumeSnapshots")
    problems = [
        f"CustomResourceDefinition {name} is missing" for name in SNAPSHOT_CRDS if name not in found
    ]
    doubts = []
    for name, crd in sorted(found.items()):
        if not any(each.name == "v1" and each.served for each in crd.spec.versions or ()):
            problems.append(f"CustomResourceDefinition {name} does not serve v1")
        old = sorted(set(crd.status.stored_versions or ()) - {"v1"})
        if old:
            doubts.append(f"CustomResourceDefinition {name} still stores {', '.join(old)}")
    remedy = (
        "install the CRDs of external-snapshotter v8 (docs/install.md); migrate stored objects "
        "before a version is removed"
    )
    if problems:
        return Finding(Verdict.FAILED, some([*problems, *doubts]), remedy)
    return judged(doubts, "all three serve and store v1", remedy, worst=Verdict.WARNING)


def _snapshot_controller(seen: Evidence) -> Finding:
    if not seen.cluster.custom_resources:
        return skipped("the snapshot CRDs are not installed")
    deployed = [
        f"Deployment {each.key}"
        for each in seen.cluster.deployments
        if any("snapshot-controller" in container.image for container in each.containers)
    ]
    stuck = list(_unbound(seen))
    remedy = (
        "install snapshot-controller of external-snapshotter (docs/install.md), or look at its log"
    )
    if stuck:
        return Finding(Verdict.FAILED, some(stuck), remedy)
    if deployed or seen.cluster.snapshot_lease is not None:
        return ok(deployed[0] if deployed else f"Lease {SNAPSHOT_LEASE}")
    return unknown(
        "the snapshot CRDs are installed, but there is no Deployment of snapshot-controller and "
        f"no Lease {SNAPSHOT_LEASE}; no VolumeSnapshot waits for it",
        "if it does not run elsewhere, install it (docs/install.md)",
    )


def _unbound(seen: Evidence) -> Iterator[str]:
    """Snapshots that nobody has looked at; an error in the status is snapshot-controller's."""
    for each in seen.cluster.snapshots:
        created = each.metadata.creation_timestamp
        if not seen.may_be_ours(each) or (each.status is not None and each.status.error):
            continue
        if not each.content_name and created is not None and seen.now - created > _WAITING:
            yield f"VolumeSnapshot {each.key} has no content since {created:%Y-%m-%dT%H:%MZ}"


RULES = (
    Rule("classes", "every StorageClass of the driver can work", ("storageclasses",), _classes),
    Rule(
        "attributes-classes",
        "every VolumeAttributesClass of the driver can be read",
        ("volumeattributesclasses",),
        _attributes_classes,
    ),
    Rule(
        "default-class",
        "there is one default StorageClass at most, or none is needed",
        ("storageclasses", "persistentvolumeclaims"),
        _default_class,
    ),
    Rule(
        "claims-of-no-class",
        "the classes of waiting claims exist",
        ("storageclasses", "persistentvolumeclaims", "persistentvolumes"),
        _claims_of_no_class,
    ),
    Rule(
        "snapshot-crds",
        "the snapshot CRDs are complete and serve v1",
        ("customresourcedefinitions", "persistentvolumeclaims"),
        _snapshot_crds,
    ),
    Rule(
        "snapshot-controller",
        "snapshot-controller runs",
        (
            *("customresourcedefinitions", "deployments"),
            *("volumesnapshots", "volumesnapshotclasses"),
        ),
        _snapshot_controller,
    ),
)
