"""VolumeMoves: the wish to give a claim another volume with the same data, and how far it is.

The kind is ours: manifests/volume-moves/crd.yaml. What is written in ``status`` is all that the
next leader needs to go on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from provisioner.model.copy_report import CheckReport, CopyReport
from provisioner.model.driver import EBS_DRIVER, IN_TREE_DRIVER
from provisioner.model.meta import KubeObject
from provisioner.model.names import OUR_PREFIX

GROUP = OUR_PREFIX.rstrip("/")
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "VolumeMove"
# On the VolumeMove: what it has made is undone, or the claim completed, before it goes.
FINALIZER = f"{OUR_PREFIX}move"
# On a pod: its scheduling gate, as long as a move holds one of its claims.
GATE = f"{OUR_PREFIX}volume-move"
_HOUR_S = 3600.0


class Phase(StrEnum):
    """How far a move is; each is written before its work begins."""

    NEW = ""
    REFUSED = "Refused"
    PLANNED = "Planned"
    WARMING = "Warming"
    HELD = "Held"
    SNAPSHOTTING = "Snapshotting"
    CREATING = "Creating"
    CHECKING = "Checking"
    COPYING = "Copying"
    SWAPPING = "Swapping"
    CLEANING = "Cleaning"
    DONE = "Done"
    ABORTING = "Aborting"
    ABORTED = "Aborted"


@dataclass(frozen=True, slots=True)
class Stage:
    """What a phase does, and the phases that follow it; for the code and for docs/move.md."""

    does: str
    then: tuple[Phase, ...] = ()


STAGES: Mapping[Phase, Stage] = {
    Phase.NEW: Stage(
        "The plan is made. Nothing is touched.",
        (Phase.PLANNED, Phase.REFUSED),
    ),
    Phase.REFUSED: Stage("The plan says why the move is not possible. Nothing was touched."),
    Phase.PLANNED: Stage(
        "The plan is written. With `dryRun` this is the end.",
        (Phase.WARMING, Phase.HELD, Phase.ABORTED),
    ),
    Phase.WARMING: Stage(
        "Pods go on. If a node has the volume, a snapshot of it is taken, up to four times, until "
        "one takes no longer than a minute: the one that counts copies only what changes after.",
        (Phase.HELD, Phase.ABORTING),
    ),
    Phase.HELD: Stage(
        "The volume is attached to no node any more, once the pods that have it have ended. With "
        "`ScaleDown`, their owners are scaled down; with `Restart`, the pods are evicted. If the "
        "volume stays, its PersistentVolume is set to Retain in the end. With "
        "`source`, the kept volume is held too.",
        (Phase.SNAPSHOTTING, Phase.CREATING, Phase.SWAPPING, Phase.ABORTING),
    ),
    Phase.SNAPSHOTTING: Stage(
        "The snapshot that counts is taken, of the detached volume.",
        (Phase.CREATING, Phase.ABORTING),
    ),
    Phase.CREATING: Stage(
        "The new volume is created from the snapshot (empty, if files are copied) and compared "
        "with the plan. Its PersistentVolume is reserved for the claim. In the end, the old one is "
        "set to Retain.",
        (Phase.CHECKING, Phase.SWAPPING, Phase.COPYING, Phase.ABORTING),
    ),
    Phase.CHECKING: Stage(
        "Only with `check`: a pod mounts the new volume read-only, and tells the type and the UUID "
        "of its file system. Then the pod and its objects are deleted, and the volume is detached.",
        (Phase.SWAPPING, Phase.ABORTING),
    ),
    Phase.COPYING: Stage(
        "Only for a smaller size or another file system: a pod copies the files and compares them "
        "by checksum. Then the pod and its objects are deleted, and both volumes are detached.",
        (Phase.SWAPPING, Phase.ABORTING),
    ),
    Phase.SWAPPING: Stage(
        "If nothing is copied, the new PersistentVolume is created. The claim is deleted and "
        "created again, bound to the new PersistentVolume. From here on the move cannot be "
        "aborted.",
        (Phase.CLEANING, Phase.ABORTING),
    ),
    Phase.CLEANING: Stage(
        "The claim has its new PersistentVolume, and pods can use it: their owners are scaled back,"
        " and pods that were held back start. If the move has stopped pods, it waits until a node "
        "has the new volume attached for one, for at most ten minutes. The snapshots are deleted; "
        "with `source`, the PersistentVolume that kept the volume.",
        (Phase.DONE,),
    ),
    Phase.DONE: Stage(
        "The old volume is kept for `keepSource`; then its PersistentVolume gets its reclaim "
        "policy back. If the volume stays, its old PersistentVolume is deleted instead.",
    ),
    Phase.ABORTING: Stage(
        "The claim has its old volume, and pods can use it: their owners are scaled back, and pods "
        "that were held back start. The snapshots and the new volume are deleted.",
        (Phase.ABORTED,),
    ),
    Phase.ABORTED: Stage("Everything is as it was before the move."),
}
ENDS = frozenset({Phase.REFUSED, Phase.DONE, Phase.ABORTED})
# In these, new pods that use the claim are held back.
HOLDING = frozenset(
    {
        *(Phase.HELD, Phase.SNAPSHOTTING, Phase.CREATING),
        *(Phase.CHECKING, Phase.COPYING, Phase.SWAPPING),
    }
)
IN_PROGRESS = HOLDING | {Phase.WARMING, Phase.CLEANING, Phase.ABORTING}
# From these, the claim still has its old volume whatever becomes of the move.
ABORTABLE = frozenset(
    {
        *(Phase.PLANNED, Phase.WARMING, Phase.HELD),
        *(Phase.SNAPSHOTTING, Phase.CREATING, Phase.CHECKING, Phase.COPYING),
    }
)


class MoveTarget(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """``spec.to``; what is not said stays as it is.

    ``size``: a quantity, "" for the same; ``fs_type``: of the new file system; ``form``: "csi" for
    a PersistentVolume of the in-tree plugin that is to become one of the driver; ``source``: the
    name of a VolumeMove that is done, whose old volume the claim is to have again.
    """

    zone: str = ""
    storage_class_name: str = ""
    encrypted: bool | None = None
    kms_key_id: str = ""
    size: str = ""
    fs_type: str = ""
    form: str = ""
    source: str = ""

    @property
    def asks_for_another_volume(self) -> bool:
        """Whether more is asked for than another PersistentVolume of the same volume."""
        asked = (self.zone, self.storage_class_name, self.kms_key_id, self.size, self.fs_type)
        return any(asked) or self.encrypted is not None


class StopPolicy(StrEnum):
    """How the pods that use the claim come to end."""

    WAIT = "Wait"
    SCALE_DOWN = "ScaleDown"
    RESTART = "Restart"


class ConsumerWish(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """``spec.consumers``. ``without_hold``: also where no webhook holds new pods back."""

    policy: StopPolicy = StopPolicy.WAIT
    without_hold: bool = False


class VolumeMoveSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """``spec``.

    ``warm``: snapshots are taken before pods stop; ``check``: a pod reads the new volume before the
    claim has it; ``keep_source``: hours, as "168h"; ``moved_with``: names of other claims whose own
    moves go the same way at the same time.
    """

    claim_name: str = ""
    to: MoveTarget = MoveTarget()
    consumers: ConsumerWish = ConsumerWish()
    warm: bool = True
    check: bool = False
    keep_source: str = "168h"
    moved_with: list[str] = []
    dry_run: bool = False
    abort: bool = False

    @property
    def keep_source_s(self) -> float:
        """For how long the old volume is kept, in seconds; the CRD allows whole hours only."""
        return int(self.keep_source.removesuffix("h") or 0) * _HOUR_S


class Shape(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a volume is: in ``status.plan``, the one that is there and the one to come.

    ``driver``: that of its PersistentVolume, or the in-tree plugin; "" where a new volume comes, as
    that has the same.
    """

    zone: str = ""
    size_gib: int = msgspec.field(default=0, name="sizeGiB")
    volume_type: str = msgspec.field(default="", name="type")
    iops: int | None = None
    throughput_mibps: int | None = msgspec.field(default=None, name="throughputMiBps")
    encrypted: bool = False
    kms_key_id: str | None = msgspec.field(default=None, name="kmsKeyID")
    storage_class_name: str = ""
    fs_type: str = ""
    driver: str = ""


class MoveEstimate(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """``status.plan.estimate``; amounts are of the currency, with two decimal places.

    Attributes:
        least_minutes: about how long it takes at least, with a first snapshot of a full volume, or
            with a copy of as many files as fit.
        most_minutes: and at most.
        currency: such as "USD"; left out, as all amounts are, where a price is not known.
        prices_of: the date of the list prices, such as "2026-11-01".
        source_month: what the old volume costs a month.
        target_month: what the new one costs a month.
        keeping_source: what both being there costs more, for as long as the old one is kept; "" if
            it is not kept, or until somebody deletes it.
        snapshot_month: the most that the snapshot costs a month, while it is there; "" without one.
    """

    least_minutes: int
    most_minutes: int
    currency: str = ""
    prices_of: str = ""
    source_month: str = ""
    target_month: str = ""
    keeping_source: str = ""
    snapshot_month: str = ""


class MovePlan(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """``status.plan``.

    ``keeps_volume``: nothing is copied, only the PersistentVolume is another one;
    ``copies_files``: a pod copies files into an empty volume; ``checks``: a pod reads the new
    volume before the swap; ``warms``: snapshots are taken while pods run, before they stop;
    ``pods``: those that stop; ``stops``:
    which owners of theirs the move scales down, in sentences; ``notes``: what a human should know
    first; ``estimate``: null if nothing is copied.
    """

    source: Shape = Shape()
    target: Shape = Shape()
    keeps_volume: bool = False
    copies_files: bool = False
    checks: bool = False
    warms: bool = False
    pods: list[str] = []
    stops: list[str] = []
    notes: list[str] = []
    estimate: MoveEstimate | None = None


class MoveSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """``status.source``: what the claim had. ``reclaim_policy``: before the move.

    ``driver``: only its controller carries the move out; a cluster may have controllers of several.
    """

    claim_uid: str = msgspec.field(default="", name="claimUID")
    persistent_volume: str = ""
    volume_id: str = msgspec.field(default="", name="volumeID")
    reclaim_policy: str = ""
    driver: str = ""


class MoveKept(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """``status.kept``: the old volume of another move, to which a move goes back.

    Attributes:
        persistent_volume: the object that keeps it, until the claim has it again.
        volume_id: the volume.
        claim_uid: of the claim that had it.
        reclaim_policy: that it gets again.
        is_all: no node had the newer volume when the plan was made, so nothing is lost.
    """

    persistent_volume: str = ""
    volume_id: str = msgspec.field(default="", name="volumeID")
    claim_uid: str = msgspec.field(default="", name="claimUID")
    reclaim_policy: str = ""
    is_all: bool = False


class MoveConsumer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An owner of pods, in ``status.consumers``.

    Attributes:
        scale_to: how many replicas it may have during the move.
        replicas: how many it had, written before it is scaled down; None if it is not.
        generation: its own, when that was written.
        times: how often it was scaled down; more than once if somebody scales it up.
        is_back: it has its replicas back, or somebody else has decided on them since.
    """

    kind: str = ""
    name: str = ""
    uid: str = ""
    scale_to: int = 0
    replicas: int | None = None
    generation: int = 0
    times: int = 0
    is_back: bool = False


class MoveCondition(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The only one of ``status.conditions``, for ``kubectl wait --for=condition=Done``.

    Source: Kubernetes API conventions, "Typical status properties".
    """

    type: str = "Done"
    status: str = "False"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class VolumeMoveStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """``status``.

    Attributes:
        message: what it waits for, why it was refused, or what a human can do.
        progress_percent: of the snapshot, as EC2 tells it; ``progress_bytes``: the same part of
            ``total_bytes``, of all that was written to the volume.
        kept: the volume to which it goes back; None if it does not.
        warm: ids of the snapshots that were taken while pods ran, in their order.
        warm_since: RFC 3339, when the last of these was asked for.
        snapshot: the id in EC2 of the one that counts, once it is known.
        request: what CreateVolume is told, frozen with the plan; the snapshot is added once known.
            None if the volume stays.
        persistent_volume: the new PersistentVolume, frozen with the plan.
        volume: the id of the new volume, or of the one that stays.
        copied: how files were copied, once they are.
        checked: what a node found on the new volume, once it was asked.
        consumers: the owners of pods that are scaled down.
        restarts: the UIDs of the pods that were evicted, or are about to be.
        pods_before: how many pods used the claim when the first of these was; the plan may be of a
            time when there were fewer.
        claim: the whole claim as JSON, written before it is deleted.
        phase_since: RFC 3339, when the phase was written.
        undone_from: the phase in which it was aborted.
        as_asked: it was refused because the volume is already as the move asks.
        ready: it could go on, to Held or to Swapping, and waits until the moves of ``moved_with``
            are as far.
        source_kept_until: RFC 3339, "" before the move is done and once the old volume was let go.
        conditions: whether it is done.
    """

    phase: str = ""
    message: str = ""
    plan: MovePlan | None = None
    source: MoveSource | None = None
    kept: MoveKept | None = None
    progress_percent: int = 0
    progress_bytes: int = 0
    total_bytes: int = 0
    warm: list[str] = []
    warm_since: str = ""
    snapshot: str = ""
    request: dict[str, Any] | None = None
    persistent_volume: dict[str, Any] | None = None
    volume: str = ""
    copied: CopyReport | None = None
    checked: CheckReport | None = None
    consumers: list[MoveConsumer] = []
    restarts: list[str] = []
    pods_before: int = 0
    claim: str = ""
    phase_since: str = ""
    undone_from: str = ""
    as_asked: bool = False
    ready: bool = False
    source_kept_until: str = ""
    conditions: list[MoveCondition] = []


class VolumeMove(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A VolumeMove."""

    spec: VolumeMoveSpec = VolumeMoveSpec()
    status: VolumeMoveStatus | None = None

    @property
    def told(self) -> VolumeMoveStatus:
        """``status``, never None."""
        return self.status or VolumeMoveStatus()

    def conditions_in(self, phase: Phase, message: str, since: str) -> list[MoveCondition]:
        """``status.conditions`` of a phase that begins at ``since`` (RFC 3339)."""
        status = "True" if phase is Phase.DONE else "False"
        known = next((each for each in self.told.conditions if each.status == status), None)
        at = known.last_transition_time if known is not None else since
        return [
            MoveCondition(
                status=status, reason=phase.value, message=message, last_transition_time=at
            )
        ]

    @property
    def source(self) -> MoveSource:
        """``status.source``, never None."""
        return self.told.source or MoveSource()

    @property
    def phase(self) -> Phase:
        """``status.phase``.

        Raises:
            ValueError: a newer controller has written one that this one does not know.
        """
        return Phase(self.told.phase)

    @property
    def claim_key(self) -> str:
        """``namespace/name`` of its claim."""
        return f"{self.metadata.namespace}/{self.spec.claim_name}"

    @property
    def claim_keys(self) -> frozenset[str]:
        """``namespace/name`` of its claim, and of those that are moved with it."""
        names = (self.spec.claim_name, *self.spec.moved_with)
        return frozenset(f"{self.metadata.namespace}/{name}" for name in names)

    @property
    def is_promised(self) -> bool:
        """Whether those that it is moved with may swap because it is ready, whatever its user says.

        One that is told to end after that, and did, would leave their pods' claims in two zones.
        The leader has promised nothing: none of them swaps before it does (``companion_rules``).
        """
        waits = self.told.phase in {Phase.HELD, Phase.CREATING, Phase.CHECKING, Phase.COPYING}
        return self.told.ready and waits and not self.leads

    @property
    def leads(self) -> bool:
        """Whether those that it is moved with go by it: it is the first of them, or alone."""
        return all(self.spec.claim_name <= each for each in self.spec.moved_with)

    @property
    def is_under_way(self) -> bool:
        """Whether it is carried out, and has not ended; one that is undone ends."""
        ending = ENDS | {Phase.ABORTING}
        late = self.is_promised or self.told.phase in {Phase.SWAPPING, Phase.CLEANING}
        return (
            (late or not self.is_to_end)
            and not self.spec.dry_run
            and (self.told.phase not in ending)
        )

    @property
    def is_to_be_read(self) -> bool:
        """Whether what its controller does next may be bound to no version of it.

        Pods are stopped although it was aborted, or an old volume let go although it was deleted.
        """
        return self.told.phase in ENDS or (self.told.phase == Phase.HELD and self.stops_pods)

    @property
    def scales_down(self) -> bool:
        """Whether its controller scales the owners of the pods down, and back."""
        return self.spec.consumers.policy is StopPolicy.SCALE_DOWN

    @property
    def restarts(self) -> bool:
        """Whether its controller evicts the pods, and those in their place wait for the swap."""
        return self.spec.consumers.policy is StopPolicy.RESTART

    @property
    def stops_pods(self) -> bool:
        """Whether its controller ends the pods that use the claim, and has them back."""
        return self.scales_down or self.restarts

    @property
    def has_stopped_pods(self) -> bool:
        """Whether it has ended pods that are to have its claim again."""
        return bool(self.told.restarts) or any(each.replicas for each in self.told.consumers)

    @property
    def holds_pods(self) -> bool:
        """Whether no new pod that uses its claim is to start now."""
        return not self.spec.dry_run and self.told.phase in HOLDING

    @property
    def keeps_volume(self) -> bool:
        """Whether its plan makes another PersistentVolume of the same volume."""
        plan = self.told.plan
        return plan is not None and plan.keeps_volume

    @property
    def changes_driver(self) -> bool:
        """Whether its plan has another driver take the volume over.

        Kubernetes takes the in-tree plugin's volumes for those of its successor.
        """
        plan = self.told.plan
        drivers = {plan.source.driver, plan.target.driver} if plan is not None else set()
        return len({EBS_DRIVER if each == IN_TREE_DRIVER else each for each in drivers}) > 1

    @property
    def goes_back(self) -> bool:
        """Whether its claim gets the old volume of another move again."""
        return bool(self.spec.to.source)

    @property
    def kept(self) -> MoveKept:
        """``status.kept``, never None."""
        return self.told.kept or MoveKept()

    @property
    def copies(self) -> bool:
        """Whether it makes a new volume; else only the PersistentVolume is new."""
        return not self.keeps_volume and not self.goes_back

    @property
    def existing_volume_id(self) -> str:
        """The volume that is there, and for which a move that does not copy makes an object."""
        return self.kept.volume_id if self.goes_back else self.source.volume_id

    @property
    def copies_files(self) -> bool:
        """Whether its plan has a pod copy files into an empty volume."""
        plan = self.told.plan
        return plan is not None and plan.copies_files

    @property
    def checks(self) -> bool:
        """Whether its plan has a pod read the new volume before the claim has it."""
        plan = self.told.plan
        return plan is not None and plan.checks

    @property
    def runs_pod(self) -> bool:
        """Whether a pod of ours has the new volume before the swap."""
        return self.copies_files or self.checks

    @property
    def warms(self) -> bool:
        """Whether its plan takes snapshots while pods run."""
        plan = self.told.plan
        return plan is not None and plan.warms

    @property
    def persistent_volume_name(self) -> str:
        """The name of the new PersistentVolume, and of the volume in its tags."""
        return f"pvc-{self.uid}"

    @property
    def pod_name(self) -> str:
        """The name of the pod that copies files or checks the new volume; its claims follow it."""
        return f"move-{self.uid}"

    @property
    def is_to_end(self) -> bool:
        """Whether its user wants it undone: by ``spec.abort``, or by deleting it."""
        return self.spec.abort or self.deleting
