"""Why an object that is being deleted is still there: whose finalizer keeps it, and how long."""

from collections.abc import Collection
from datetime import timedelta

from provisioner.inspect.explain.chain_rules import Cause, Link, Proof, at
from provisioner.inspect.explain.view_rules import View
from provisioner.inspect.reading.time_rules import deleted_at
from provisioner.inspect.shell_words import shell
from provisioner.model.meta import UnlabelledObject

# Longer than a pod may take to end as a rule, and than EC2 needs for a detachment.
USUAL = timedelta(minutes=5)
"""How long a deletion may take before it is called late."""


def is_late(view: View, obj: UnlabelledObject) -> bool:
    """Whether the deletion takes longer than it should, so that it no longer only waits."""
    began = deleted_at(obj)
    return began is not None and view.now - began > USUAL


def foreign(kind: str, obj: UnlabelledObject, known: Collection[str]) -> Link | None:
    """A finalizer of neither this driver nor Kubernetes; None if there is none.

    Args:
        kind: as commands name it: "pv".
        obj: being deleted.
        known: finalizers, or how they begin, whose owners are known.
    """
    others = [each for each in obj.finalizers if not each.startswith(tuple(known))]
    if not others:
        return None
    return Link(
        Cause.FINALIZER_STUCK,
        f"{kind} {obj.key} is being deleted, and kept by {_finalizer(others)}.",
        Proof(f"{kind} {obj.key}, metadata.finalizers", ", ".join(obj.finalizers)),
        next=f"the owner of {others[0]}; unknown to this driver",
        remedy="Start that controller. Only if it is gone for good, remove its finalizer.",
        command=_finalizers(kind, obj),
    )


def _finalizer(names: Collection[str]) -> str:
    return f"finalizer{'s' if len(names) > 1 else ''} {', '.join(names)}"


def late(kind: str, obj: UnlabelledObject, by: str, remedy: str, command: str = "") -> Link:
    """Its owner is known, and takes too long."""
    began = at(deleted_at(obj))
    minutes = USUAL.seconds // 60
    return Link(
        Cause.FINALIZER_STUCK,
        f"The deletion of {kind} {obj.key} began more than {minutes} minutes ago and has not "
        "ended.",
        Proof(
            f"{kind} {obj.key}, metadata.deletionTimestamp and finalizers",
            f"{began}; {', '.join(obj.finalizers) or 'none'}",
        ),
        next=by,
        remedy=remedy,
        command=command or _finalizers(kind, obj),
    )


def _finalizers(kind: str, obj: UnlabelledObject) -> str:
    namespace = obj.metadata.namespace
    word = {"snapshot": "volumesnapshot"}.get(kind, kind)
    words = (word, obj.name, "jsonpath={.metadata.finalizers}")
    if not namespace:
        return shell("kubectl get {} {} -o {}", *words)
    return shell("kubectl -n {} get {} {} -o {}", namespace, *words)
