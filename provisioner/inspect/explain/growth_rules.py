"""Why a bound claim does not grow, or does not get its VolumeAttributesClass."""

from collections.abc import Iterator

from provisioner.controller.modifying import class_rules, growth_rules
from provisioner.inspect.explain import controller_rules, reason_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof, at
from provisioner.inspect.explain.controller_rules import Task
from provisioner.inspect.explain.view_rules import ClaimView, Said, View, VolumeView, newest
from provisioner.model.claim import Claim
from provisioner.model.decision import Settled
from provisioner.model.errors import Reason
from provisioner.model.modification import ModificationState

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
    absent = controller_rules.absence(view, Task.RESIZE)
    budget = _budget(volume)
    if absent is not None:
        return [absent.then(what)]
    if budget is not None:
        return [Chain((budget, what))]
    failed = _failure(about, claim)
    if failed is not None:
        return [Chain((reason_rules.link_of(failed, Cause.MODIFYING), what))]
    return [Chain((_running(volume) or what,), waits=True)]


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
            f"pv {volume.name}, annotation ebs-provisioner.io/modifications; "
            "EC2 DescribeVolumesModifications",
            f"0 left until {at(volume.more_at)}",
        ),
        next=reason_rules.who_acts(Reason.MODIFICATION_LIMIT, volume.more_at),
        remedy="Nothing: everything that is requested until then goes together.",
        command="kubectl ebs volumes",
    )


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
    if found is None or found.state is ModificationState.COMPLETED:
        return None
    proof = Proof(
        "EC2 DescribeVolumesModifications", f"{found.state}, {found.progress_percent} % done"
    )
    if found.state is ModificationState.FAILED:
        return Link(
            Reason.INVALID_REQUEST,
            f"EC2 could not carry out the last modification: {found.message or 'no reason given'}.",
            proof,
            next="the controller, which tries again",
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
