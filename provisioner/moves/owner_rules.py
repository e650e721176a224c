"""How the pods of a claim are stopped by hand, and started again: read from their owners."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.inspect.shell_words import shell
from provisioner.model.document import Document

POD, DAEMON_SET = "Pod", "DaemonSet"
# Kinds that ``kubectl scale`` takes, by the word that it takes for them.
SCALED = {"StatefulSet": "statefulset", "Deployment": "deployment"}


@dataclass(frozen=True, slots=True)
class Owner:
    """What makes the pods of a claim, or a pod that nothing makes."""

    kind: str
    name: str
    replicas: int = 1

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def controller_of(found: Document) -> Mapping[str, Any]:
    """The owner reference of its controller; {} for none."""
    references = found.metadata.owner_references or ()
    return next((each for each in references if each.get("controller")), {})


def owner(found: Document, kind: str) -> Owner:
    """A StatefulSet or a Deployment, as an owner of pods."""
    replicas = found.spec.get("replicas")
    return Owner(kind, found.name, 1 if replicas is None else replicas)


def how_to_stop(owners: Iterable[Owner], namespace: str) -> Iterator[str]:
    """How the pods are stopped, and started again; a sentence for each owner."""
    for each in owners:
        word = SCALED.get(each.kind)
        if each.kind == POD:
            yield f"nobody makes pod {each.name} again: delete it, and create it afterwards"
        elif each.kind == DAEMON_SET:
            yield f"{each} starts its pods again at once, as long as it exists: delete it"
        elif word is None:
            yield f"{each} has pods that use the claim: stop it, or delete it"
        else:
            scale = "kubectl -n {} scale " + word + " {} --replicas={}"
            yield (
                f"to stop: {shell(scale, namespace, each.name, '0')}; afterwards: "
                f"{shell(scale, namespace, each.name, str(max(each.replicas, 1)))}"
            )
