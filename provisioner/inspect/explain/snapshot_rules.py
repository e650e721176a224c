"""Why a VolumeSnapshot is not ready, or does not go away."""

from datetime import timedelta

from provisioner.inspect.explain import controller_rules, deletion_rules, reason_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof
from provisioner.inspect.explain.controller_rules import Task
from provisioner.inspect.explain.view_rules import SnapshotView, View, newest
from provisioner.inspect.reading.gap_rules import GROUPS
from provisioner.inspect.reading.kind_rules import WatchedSnapshot
from provisioner.inspect.shell_words import shell
from provisioner.model.ebs_snapshot import SnapshotState
from provisioner.model.errors import Reason
from provisioner.model.volume_snapshot import VolumeSnapshotContent

SERVED = "v1"  # the version of the snapshot kinds that this project reads
_FINALIZERS = ("snapshot.storage.kubernetes.io/",)
_BY_CONTROLLER = timedelta(seconds=5)
_FAILED = (
    "SnapshotCreationFailed",
    "SnapshotContentCreationFailed",
    "SnapshotContentCheckandUpdateFailed",
    "SnapshotDeleteError",
    "GetSnapshotClassFailed",
    "SetDefaultSnapshotClassFailed",
    "SnapshotContentMissing",
)
_BY_GROUP = "the snapshot-controller of external-snapshotter"


def chains(view: View, about: SnapshotView) -> list[Chain]:
    """What is wrong with a snapshot, or what it waits for; nothing if it is ready."""
    kinds = _kinds(view, about)
    if kinds is not None:
        return [Chain((kinds,))]
    snapshot = about.snapshot
    if snapshot is None:
        link = Link(
            Cause.OBJECT_MISSING,
            f"There is no VolumeSnapshot {about.key}.",
            Proof(f"snapshot {about.key}", "not found"),
            remedy="Check the name and the namespace.",
            command=shell("kubectl -n {} get volumesnapshot", about.namespace),
        )
        return [Chain((link,))]
    if snapshot.deleting:
        return [_deleting(view, about, snapshot)]
    content = about.content
    if snapshot.is_ready:  # its class is no longer needed, and is often deleted before it
        return _of_ready(view, about, snapshot, content)
    if about.class_name and about.snapshot_class is None and view.read("volumesnapshotclasses"):
        return [Chain((_class_missing(about), _not_ready(about)))]
    if content is None:
        return [_without_content(view, about, snapshot)]
    return [_not_yet(view, about, content)]


def _kinds(view: View, about: SnapshotView) -> Link | None:
    """The CRDs, as far as the API server's groups tell."""
    if SERVED in about.versions or GROUPS in view.unread:
        return None
    old = ", ".join(about.versions)
    return Link(
        Cause.NO_SNAPSHOT_KINDS,
        "The cluster does not serve VolumeSnapshots in version v1."
        if old
        else "The cluster does not serve VolumeSnapshots at all.",
        Proof("API group snapshot.storage.k8s.io", old or "none"),
        next="you",
        remedy="Install the CRDs and the snapshot-controller of external-snapshotter 8.",
        command="kubectl get crd | grep snapshot.storage.k8s.io",
    )


def _class_missing(about: SnapshotView) -> Link:
    return Link(
        Cause.SNAPSHOT_CLASS_MISSING,
        f"VolumeSnapshotClass {about.class_name} does not exist.",
        Proof(f"snapshot {about.key}, spec.volumeSnapshotClassName", about.class_name),
        next="you",
        remedy="Create the class, then create the snapshot again.",
        command="kubectl get volumesnapshotclass",
    )


def _without_content(view: View, about: SnapshotView, snapshot: WatchedSnapshot) -> Chain:
    if snapshot.content_name and view.read("volumesnapshotcontents"):
        return Chain((_content_gone(about, snapshot.content_name), _not_ready(about)))
    source = snapshot.spec.source.persistent_volume_claim_name
    if source and about.source is None and view.read("persistentvolumeclaims"):
        return Chain((_source_missing(about, source), _not_ready(about)))
    told = newest(about.said, *_FAILED, warning=True)
    if told is not None:
        return Chain((reason_rules.link_of(told, Cause.SNAPSHOT_WAITS), _not_ready(about)))
    error = snapshot.status.error if snapshot.status else None
    if error is not None and error.message:
        failed = Link(
            Cause.SNAPSHOT_WAITS,
            f"The snapshot-controller could not begin: {error.message}",
            Proof(f"snapshot {about.key}, status.error", error.message),
            next=_BY_GROUP,
        )
        return Chain((failed, _not_ready(about)))
    made = snapshot.metadata.creation_timestamp
    return _unseen(about, is_new=made is not None and view.now - made < _BY_CONTROLLER)


def _unseen(about: SnapshotView, *, is_new: bool) -> Chain:
    """Neither a content nor an error."""
    link = Link(
        Cause.NO_SNAPSHOT_CONTROLLER,
        "Nobody has created a VolumeSnapshotContent for the snapshot.",
        Proof(f"snapshot {about.key}, status", "no content, and no error"),
        next=f"{_BY_GROUP}, which creates it",
        remedy="" if is_new else f"Install or start {_BY_GROUP}; it is not part of this driver.",
        command="" if is_new else "kubectl get pods -A | grep snapshot-controller",
    )
    return Chain((link, _not_ready(about)), waits=is_new)


def _content_gone(about: SnapshotView, name: str) -> Link:
    return Link(
        Cause.CONTENT_MISSING,
        f"VolumeSnapshotContent {name} of the snapshot does not exist.",
        Proof(f"snapshot {about.key}, status.boundVolumeSnapshotContentName", name),
        next="you; somebody has deleted it",
        remedy="If EC2 still has the snapshot, create a content with its id, and a snapshot of "
        "that content.",
        command="aws ec2 describe-snapshots --owner-ids self",
    )


def _source_missing(about: SnapshotView, source: str) -> Link:
    namespace = about.namespace
    return Link(
        Cause.SOURCE_MISSING,
        f"Claim {namespace}/{source}, of which the snapshot is to be taken, does not exist.",
        Proof(f"snapshot {about.key}, spec.source.persistentVolumeClaimName", source),
        next="you",
        remedy="Create the snapshot again with the name of a claim in its own namespace.",
        command=shell("kubectl -n {} get pvc", namespace),
    )


def _of_ready(
    view: View,
    about: SnapshotView,
    snapshot: WatchedSnapshot,
    content: VolumeSnapshotContent | None,
) -> list[Chain]:
    """It is said to be ready; its content and EC2's snapshot must still be there."""
    if content is None:
        is_gone = bool(snapshot.content_name) and view.read("volumesnapshotcontents")
        return [Chain((_content_gone(about, snapshot.content_name),))] if is_gone else []
    if about.ebs is not None or "DescribeSnapshots" in view.unread or "EC2" in view.unread:
        return []
    if not content.snapshot_id or content.spec.driver != view.driver:
        return []
    link = Link(
        Reason.SNAPSHOT_NOT_FOUND,
        f"EC2 has no snapshot {content.snapshot_id}: somebody has deleted it, or it is of another "
        "region or account.",
        Proof("EC2 DescribeSnapshots", f"nothing for {content.snapshot_id}"),
        next="you",
        remedy="Restore another snapshot.",
    )
    return [Chain((link,))]


def _not_yet(view: View, about: SnapshotView, content: VolumeSnapshotContent) -> Chain:
    if content.spec.driver != view.driver:
        link = Link(
            Cause.CLASS_NOT_OURS,
            f"The snapshot is of driver {content.spec.driver}, not of {view.driver}.",
            Proof(f"content {content.name}, spec.driver", content.spec.driver),
            next=f"the controller of {content.spec.driver}",
        )
        return Chain((link, _not_ready(about)))
    absent = controller_rules.absence(view, Task.SNAPSHOT)
    if absent is not None:
        return absent.then(_not_ready(about))
    told = newest(about.said, *_FAILED, warning=True)
    if told is not None:
        return Chain((reason_rules.link_of(told, Cause.SNAPSHOT_WAITS), _not_ready(about)))
    ebs = about.ebs
    if ebs is not None and ebs.state is SnapshotState.ERROR:
        link = Link(
            Reason.SNAPSHOT_STATE,
            f"EC2 could not take snapshot {ebs.snapshot_id}: {ebs.message or 'no reason given'}",
            Proof("EC2 DescribeSnapshots, State", "error"),
            next="you",
            remedy="Delete the snapshot, and take it again.",
        )
        return Chain((link, _not_ready(about)))
    seen = f"{ebs.state}, {ebs.progress_percent} % done" if ebs else "no snapshot yet"
    link = Link(
        Cause.SNAPSHOT_WAITS,
        "EC2 copies the data; the snapshot is ready once that is done."
        if ebs
        else "The snapshot is being taken.",
        Proof("EC2 DescribeSnapshots" if ebs else f"content {content.name}, status", seen),
        next="EC2; the content of the snapshot is that of its start" if ebs else "the controller",
    )
    return Chain((link,), waits=True)


def _deleting(view: View, about: SnapshotView, snapshot: WatchedSnapshot) -> Chain:
    going = Link(
        Cause.FINALIZER_STUCK,
        f"VolumeSnapshot {about.key} is being deleted.",
        Proof(f"snapshot {about.key}, metadata.finalizers", ", ".join(snapshot.finalizers)),
        next=_BY_GROUP,
    )
    told = newest(about.said, *_FAILED, warning=True)
    absent = controller_rules.absence(view, Task.SNAPSHOT)
    if absent is not None and about.content is not None:
        return absent.then(going)
    if told is not None and told.reason is not None:
        return Chain((reason_rules.link_of(told, Cause.FINALIZER_STUCK), going))
    other = deletion_rules.foreign("snapshot", snapshot, _FINALIZERS)
    if other is not None:
        return Chain((other, going))
    if deletion_rules.is_late(view, snapshot):
        remedy = (
            f"Check that {_BY_GROUP} runs; it waits as long as a claim is being made from the "
            "snapshot."
        )
        command = "kubectl get pods -A | grep snapshot-controller"
        late = deletion_rules.late("snapshot", snapshot, _BY_GROUP, remedy, command)
        return Chain((late, going))
    return Chain((going,), waits=True)


def _not_ready(about: SnapshotView) -> Link:
    status = about.snapshot.status if about.snapshot else None
    ready = status.ready_to_use if status else None
    return Link(
        Cause.SNAPSHOT_WAITS,
        f"So snapshot {about.key} is not ready to use.",
        Proof(
            f"snapshot {about.key}, status.readyToUse",
            "not set" if ready is None else str(ready).lower(),
        ),
    )
