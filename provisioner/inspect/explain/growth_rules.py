"""Why a bound claim does not grow, or does not get its VolumeAttributesClass."""

from collections.abc import Iterator

from provisioner.controller.modifying import class_rules, growth_rules
from provisioner.inspect.explain import controller_rules, reason_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof, at
from provisioner.inspect.explain.controller_rules import Task
from provisioner.inspect.explain.view_rules import ClaimView, Said, View, VolumeView, newest
from provisioner.inspect.shell_words import shell
from provisioner.model.claim import Claim
from provisioner.model.decision import Settled
from provisioner.model.errors import Reason
from provisioner.model.modification import Modification, ModificationState, Shape
from provisioner.model.names import MODIFICATIONS
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.volume import GIB

_FILE_SYSTEM = "FileSystemResizePending"
_FAILED = ("VolumeResizeFailed", "VolumeModifyFailed")
_WAITS = ("Resizing", "VolumeModify")


def chains(view: View, about: ClaimView, claim: Claim) -> list[Chain]:
    """What is wrong with a claim that should grow or change, or what that waits for."""
    volume = about.volume
    if volume is None or volume.persistent_volume is None:
        return []
    grows, changes = _grows(claim, volume), _changes(claim)
    if not grows and not changes:
        return list(_file_system(about, claim))
    what = _what(claim, grows=grows)
    missing = _class_missing(view, about, claim) if changes else None
    if missing is not None:
        return [Chain((missing, what))]
    if volume.persistent_volume.volume_id(view.driver) is None:
        return [_of_another_driver(view, about, claim, volume.persistent_volume).then(what)]
    absent = controller_rules.absence(view, Task.RESIZE)
    if absent is not None:
        return [absent.then(what)]
    if _is_sent(about, claim, volume):
        return [_under_way(about, claim, volume).then(what)]
    budget = _budget(volume)
    if budget is not None:
        return [Chain((budget, what))]
    failed = _failure(about, claim)
    if failed is not None:
        return [Chain((_refused(failed), what))]
    return [Chain((_running(volume) or what,), waits=True)]


def _of_another_driver(view: View, about: ClaimView, claim: Claim, found: PlacedVolume) -> Chain:
    """Not our controller's, whose leases and EC2 say nothing of it."""
    failed = _failure(about, claim)
    if failed is not None:
        return Chain((_refused(failed),))
    driver = found.spec.csi.driver if found.spec.csi else "no CSI driver"
    link = Link(
        Cause.CLASS_NOT_OURS,
        f"The claim's volume is of {driver}, not of {view.driver}: only the other controller can "
        "grow or change it.",
        Proof(f"pv {found.name}, spec.csi.driver", driver),
        next=f"the controller of {driver}",
    )
    return Chain((link,), waits=True)


def _is_sent(about: ClaimView, claim: Claim, volume: VolumeView) -> bool:
    """Whether EC2's latest modification is the one that the claim asks for."""
    found = volume.modification
    if found is None:
        return False
    try:
        enough = found.target.size_gib * GIB >= parse_bytes(claim.requested_storage)
    except ValueError:
        return False
    return enough and _is_of_class(about, found.target)


def _is_of_class(about: ClaimView, target: Shape) -> bool:
    """Whether a volume of this shape has what the claim's VolumeAttributesClass asks for."""
    wanted = (about.attributes_class.parameters or {}) if about.attributes_class else {}
    shown = {
        "type": target.volume_type,
        "iops": str(target.iops),
        "throughput": str(target.throughput_mibps),
    }
    asked = {key.lower(): value for key, value in wanted.items()}
    return all(asked[key] == value for key, value in shown.items() if key in asked)


def _under_way(about: ClaimView, claim: Claim, volume: VolumeView) -> Chain:
    """EC2 has been asked for it: only what was said since then counts."""
    found = volume.modification
    assert found is not None  # noqa: S101 -- the caller has looked
    if found.state is ModificationState.FAILED:
        return Chain((_failed(found),))
    said = _failure(about, claim)
    since = found.started_at
    is_new = said is not None and (
        said.where.startswith("condition ")
        or (since is not None and said.at is not None and said.at > since)
    )
    if said is not None and said.warning and is_new:
        return Chain((_refused(said),))
    running = _running(volume)
    if running is None:
        running = Link(
            Cause.MODIFYING,
            "EC2 has modified the volume.",
            Proof("EC2 DescribeVolumesModifications", str(found.state)),
            next="the controller, which notes it in the objects",
        )
    return Chain((running,), waits=True)


def _grows(claim: Claim, volume: VolumeView) -> bool:
    found = volume.persistent_volume
    assert found is not None  # noqa: S101 -- the caller has looked
    try:
        decided = growth_rules.decide(claim, found, is_free=True)
    except ValueError:
        return False
    return not isinstance(decided, Settled)


def _changes(claim: Claim) -> bool:
    return isinstance(class_rules.target_of(claim, is_free=True), class_rules.Target)


def _what(claim: Claim, *, grows: bool) -> Link:
    if grows:
        return Link(
            Cause.GROWS,
            f"So claim {claim.key} has not grown from {claim.capacity} to "
            f"{claim.requested_storage} yet.",
            Proof(f"pvc {claim.key}, status.capacity", claim.capacity),
        )
    return Link(
        Cause.MODIFYING,
        f"So claim {claim.key} does not have VolumeAttributesClass "
        f"{claim.attributes_class_name} yet.",
        Proof(
            f"pvc {claim.key}, status.currentVolumeAttributesClassName",
            claim.current_attributes_class_name or "none",
        ),
    )


def _class_missing(view: View, about: ClaimView, claim: Claim) -> Link | None:
    name = claim.attributes_class_name
    if about.attributes_class is not None or not view.read("volumeattributesclasses"):
        return None
    return Link(
        Reason.CLASS_NOT_FOUND,
        f"VolumeAttributesClass {name} does not exist.",
        Proof(f"pvc {claim.key}, spec.volumeAttributesClassName", name),
        next="you; the volume changes once the class exists",
        remedy="Create the class, or name another one in the claim.",
        command="kubectl get volumeattributesclass",
    )


def _budget(volume: VolumeView) -> Link | None:
    """EC2's four modifications in 24 hours."""
    if volume.left != 0 or volume.more_at is None:
        return None
    return Link(
        Reason.MODIFICATION_LIMIT,
        "The volume's four modifications in 24 hours are used up.",
        Proof(
            f"pv {volume.name}, annotation {MODIFICATIONS}; EC2 DescribeVolumesModifications",
            f"0 left until {at(volume.more_at)}",
        ),
        next=reason_rules.who_acts(Reason.MODIFICATION_LIMIT, volume.more_at),
        remedy="Nothing: everything that is requested until then goes together.",
        command="kubectl ebs volumes",
    )


def _refused(said: Said) -> Link:
    return reason_rules.link_of(said, Cause.MODIFYING, within=reason_rules.WITHIN_OF_CHANGES)


def _failure(about: ClaimView, claim: Claim) -> Said | None:
    """What the conditions say that is not old: the controller removes them after a success."""
    for kind in ("ControllerResizeError", "NodeResizeError", "ModifyVolumeError"):
        found = claim.condition(kind)
        if found is not None and found.status == "True":
            said = [each for each in about.said if each.where == f"condition {kind}"]
            if said:
                return said[0]
    failed = newest(about.said, *_FAILED, warning=True)
    # That a limit is reached is a Normal event: it is sent later by itself.
    limited = [
        each
        for each in about.said
        if each.event in _WAITS and each.reason is Reason.MODIFICATION_LIMIT
    ]
    return failed or newest(tuple(limited))


def _running(volume: VolumeView) -> Link | None:
    found = volume.modification
    if found is None or found.state in {ModificationState.COMPLETED, ModificationState.FAILED}:
        return None
    proof = Proof(
        "EC2 DescribeVolumesModifications", f"{found.state}, {found.progress_percent} % done"
    )
    optimizing = found.state is ModificationState.OPTIMIZING
    return Link(
        Reason.MODIFICATION_RUNNING,
        "The volume's last modification is not completed: EC2 takes the next one only then."
        if optimizing
        else "EC2 is modifying the volume.",
        proof,
        next="EC2; then the controller. Optimizing can take hours",
        remedy="Nothing.",
        command="kubectl ebs volumes",
    )


def _failed(found: Modification) -> Link:
    return Link(
        Reason.VOLUME_STATE,
        f"EC2 could not carry out the modification: {found.message or 'no reason given'}.",
        Proof("EC2 DescribeVolumesModifications", f"{found.state}: {found.message}"),
        next="the controller, which tries again within EC2's limit of modifications",
        remedy="If it fails again: request another size or class.",
        command=shell("aws ec2 describe-volumes-modifications --volume-ids {}", found.volume_id),
    )


def _file_system(about: ClaimView, claim: Claim) -> Iterator[Chain]:
    """The volume has grown; the file system has not."""
    waiting = claim.condition(_FILE_SYSTEM)
    if waiting is None or waiting.status != "True":
        return
    failed = newest(about.said, "VolumeResizeFailed", warning=True)
    grown = Link(
        Cause.FILE_SYSTEM_WAITS,
        f"The volume of claim {claim.key} has grown; its file system grows while a pod uses it.",
        Proof(f"pvc {claim.key}, condition {_FILE_SYSTEM}", waiting.message or "True"),
        next="kubelet, once a pod with the claim runs",
    )
    if failed is not None and failed.reason is not None:
        yield Chain((reason_rules.link_of(failed, Cause.FILE_SYSTEM_WAITS), grown))
        return
    yield Chain((grown,), waits=True)
