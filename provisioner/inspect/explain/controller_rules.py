"""Is anybody working? By the leases that the stock driver's sidecars and our controllers share."""

from datetime import timedelta
from enum import IntEnum

from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof, at
from provisioner.inspect.explain.view_rules import ControllerView, Lease, Said, View
from provisioner.inspect.shell_words import shell


class Task(IntEnum):
    """What somebody has to do: the place of its lease among the four."""

    PROVISION = 0
    ATTACH = 1
    RESIZE = 2
    SNAPSHOT = 3


_DOES = {
    Task.PROVISION: "creates and deletes volumes",
    Task.ATTACH: "attaches and detaches volumes",
    Task.RESIZE: "grows and changes volumes",
    Task.SNAPSHOT: "takes snapshots",
}
# The longest pause between two tries: ours waits a minute, the stock driver's sidecars five.
_TRIES = timedelta(minutes=10)
_DEPLOYMENTS = (
    "kubectl get deployments -A "
    "-l 'app.kubernetes.io/name in (ebs-provisioner,aws-ebs-csi-driver)' -o wide"
)
_PODS = "kubectl get pods -A -l 'app.kubernetes.io/component in (controller,csi-driver)'"


def absence(view: View, task: Task, said: Said | None = None) -> Chain | None:
    """Why nobody does this; None if somebody does, or that cannot be known.

    Args:
        view: all that is known.
        task: to be done.
        said: by whom does it, if anything was: a controller without leader election has no leases.
    """
    controller = view.controller
    if not controller.leases:
        return None
    lease = controller.leases[task]
    if not lease.exists and said is not None and is_recent(view, said):
        return None
    where = f"lease {controller.namespace}/{lease.name}"
    if not lease.is_held(view.now):
        return Chain((_not_held(view, task, lease, where),))
    split = _split(view)
    return Chain((split,)) if split is not None else None


def is_recent(view: View, said: Said) -> bool:
    """Whether it was said after, or in, the last try."""
    return said.at is not None and view.now - said.at < _TRIES


def holder(view: View, task: Task) -> Lease | None:
    """The lease of somebody who does this."""
    leases = view.controller.leases
    return leases[task] if leases and leases[task].is_held(view.now) else None


def log(view: View, task: Task) -> str:
    """The command that shows the log of who does this; its pods if that one's is not known."""
    lease = holder(view, task)
    if lease is None or not lease.pod:
        return _PODS
    # One pod of the stock driver has a container for each task.
    every = "" if lease.is_ours else " --all-containers"
    return shell("kubectl -n {} logs {} --tail=50", *lease.pod.split("/")) + every


def is_ours(view: View, task: Task) -> bool:
    """Whether a controller of this project does this, whose events have finer reasons."""
    found = holder(view, task)
    return found is not None and found.is_ours


def _not_held(view: View, task: Task, lease: Lease, where: str) -> Link:
    does = _DOES[task]
    pods = _pods(view.controller)
    if not lease.exists or not lease.holder:
        seen = "does not exist" if not lease.exists else "nobody holds it"
        return Link(
            Cause.NO_CONTROLLER,
            f"No controller of driver {view.driver} is running: nobody {does}.",
            Proof(where, seen + pods),
            next="you; nothing happens until a controller runs",
            remedy="Start the controller, or find out why its pods do not run.",
            command=_PODS,
        )
    return Link(
        Cause.LEASE_EXPIRED,
        f"The controller that {does} has stopped, and no other one has taken over.",
        Proof(where, f"holder {lease.holder} renewed it last at {at(lease.renewed_at)}{pods}"),
        next="another replica, 15 s after the last renewal, if one runs",
        remedy="Start the controller again, or find out why its pods do not run. Leave the lease: "
        "it is taken over by itself.",
        command=_PODS,
    )


def _split(view: View) -> Link | None:
    """Ours works only with all four leases, so with some of them it does nothing."""
    held = [each for each in view.controller.leases if each.is_held(view.now)]
    ours = [each for each in held if each.is_ours]
    others = [each for each in held if not each.is_ours]
    if not ours or not others:
        return None
    return Link(
        Cause.LEASE_SPLIT,
        "Two controllers share the leases, so ours does nothing yet.",
        Proof(
            f"leases in {view.controller.namespace}",
            "; ".join(f"{each.name}: {each.holder}" for each in held),
        ),
        next="our controller: it gives its leases back within a minute and tries again",
        remedy="Let only one driver's controller run: scale the other one to 0.",
        command=_DEPLOYMENTS,
    )


def _pods(controller: ControllerView) -> str:
    if not controller.pods:
        return ""
    told = (
        f"pod {each.key} is {each.status.phase or 'unknown'}"
        + (f" ({waiting.reason})" if (waiting := each.waiting) else "")
        for each in controller.pods
    )
    return "; " + ", ".join(told)
