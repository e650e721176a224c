"""Why a container of a pod does not start, or is not ready, although its volumes are there."""

from datetime import timedelta

from provisioner.inspect.explain import reason_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof, at
from provisioner.inspect.explain.view_rules import Said, View, newest
from provisioner.inspect.reading.kind_rules import ContainerStatus, WatchedPod
from provisioner.inspect.shell_words import shell

_GETS_READY_IN = timedelta(minutes=2)
_RECENT = timedelta(minutes=10)
_FULL = "no space left on device"
# Of events of its start, which are over.
_OVER = ("FailedScheduling", "FailedAttachVolume", "FailedMount", "FailedMapVolume")


def chains(view: View, pod: WatchedPod) -> list[Chain]:
    """What a pod's containers wait for; nothing if all are ready, or have yet to be created."""
    held = pod.held
    if held is not None and held.held is not None:
        waiting = held.held
        told = f"does not start: {waiting.reason}"
        return [Chain((_link(view, pod, held, told, waiting.message or waiting.reason),))]
    works = pod.initialising
    if works is not None:
        return [Chain((_initialises(pod, works),), waits=True)]
    unready = pod.unready if pod.status.phase == "Running" else None
    if unready is None:
        return []
    since = unready.started_at
    seen = f"ready: false, running since {at(since)}" if since else "ready: false"
    link = _link(view, pod, unready, "is not ready", seen)
    return [Chain((link,), waits=since is not None and view.now - since < _GETS_READY_IN)]


def _link(view: View, pod: WatchedPod, status: ContainerStatus, told: str, seen: str) -> Link:
    last = _last_warning(view)
    is_full = _FULL in f"{seen} {last.text if last else ''}".lower()
    return Link(
        Cause.CONTAINER_FAILS,
        f"Container {status.name} of pod {pod.key} {told}.",
        reason_rules.proof_of(last) if last else Proof(f"pod {pod.key}, container statuses", seen),
        next="kubelet, which tries again",
        remedy="A file system is full. If it is that of a volume, expand the volume's claim."
        if is_full
        else "Look at the container: as far as can be seen, this is not about volumes.",
        command="kubectl ebs df" if is_full else _look(pod, status),
    )


def _look(pod: WatchedPod, status: ContainerStatus) -> str:
    """Its log; what has never run has none."""
    namespace = pod.metadata.namespace
    if status.held is None:
        return shell("kubectl -n {} logs {} -c {}", namespace, pod.name, status.name)
    if status.held.reason == "CrashLoopBackOff":
        return shell("kubectl -n {} logs {} -c {} --previous", namespace, pod.name, status.name)
    return shell("kubectl -n {} describe pod {}", namespace, pod.name)


def _initialises(pod: WatchedPod, works: ContainerStatus) -> Link:
    return Link(
        Cause.POD_WAITS,
        f"The volumes of pod {pod.key} are mounted; init container {works.name} runs, and the "
        "others start after it.",
        Proof(
            f"pod {pod.key}, status.initContainerStatuses", f"running since {at(works.started_at)}"
        ),
        next=f"init container {works.name}, which has to end",
        remedy="If it takes too long: look at its log.",
        command=shell("kubectl -n {} logs {} -c {}", pod.metadata.namespace, pod.name, works.name),
    )


def _last_warning(view: View) -> Said | None:
    found = tuple(each for each in view.pod_said if each.event not in _OVER)
    last = newest(found, warning=True)
    if last is None or (last.at is not None and view.now - last.at > _RECENT):
        return None
    return last
