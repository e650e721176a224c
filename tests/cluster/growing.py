"""What stories of growing and changing write and see, and kubelet's part in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from provisioner.sandbox import nodes
from provisioner.sandbox.api import ApiError
from tests.cluster.cluster import ATTRIBUTES_CLASSES, CLASSES, PATIENCE_S, PVS, Json, handle_of
from tests.cluster.place import Place

PRE_RESIZE_CAPACITY = "volume.alpha.kubernetes.io/pre-resize-capacity"
NODE_NOT_REQUIRED = "volume.kubernetes.io/node-expansion-not-required"
IN_TREE = "kubernetes.io/aws-ebs"
FAST = {"type": "gp3", "iops": "5000", "throughput": "300"}
AS_FAST = {"Iops": "5000", "Throughput": "300"}
"""What ModifyVolume is told for a gp3 volume: its type stays."""
_CONFLICT = 409
# Source: Kubernetes 1.36 pkg/volume/util/resize_util.go, knownResizeConditions.
_OF_RESIZING = frozenset(
    {"Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"}
)


# -- what is written


async def a_volume(
    place: Place, name: str = "data", *, in_tree: bool = False, **spec: Any
) -> tuple[str, str]:
    """A bound claim of 20 GiB that may grow: the names of its persistent volume and its volume."""
    suffix = "in-tree-grows" if in_tree else "grows"
    class_name = f"{place.name}-{suffix}"
    if await place.cluster.get(f"{CLASSES}/{class_name}") is None:
        driver = IN_TREE if in_tree else nodes.DRIVER
        await place.storage_class(suffix, allowVolumeExpansion=True, provisioner=driver)
    await place.claim(class_name, name, **{"resources": _storage("20Gi")} | spec)
    pv = await place.bound(name)
    handle = pv["spec"]["awsElasticBlockStore"]["volumeID"] if in_tree else handle_of(pv)
    return str(pv["metadata"]["name"]), str(handle)


async def ask(
    place: Place, size: str | None = None, *, attributes: str | None = None, name: str = "data"
) -> None:
    """Want another size, another class of attributes, or both in one change of the claim."""
    spec: Json = {}
    if size is not None:
        spec["resources"] = _storage(size)
    if attributes is not None:
        spec["volumeAttributesClassName"] = attributes
    await place.api.patch(f"{place.claims}/{name}", {"spec": spec})


async def attributes_class(
    place: Place, suffix: str, *, driver: str = nodes.DRIVER, **parameters: str
) -> str:
    """A VolumeAttributesClass of the story; its name."""
    name = f"{place.name}-{suffix}"
    body = {"metadata": {"name": name}, "driverName": driver, "parameters": parameters}
    await place.api.create(ATTRIBUTES_CLASSES, body)
    return name


def _storage(size: str) -> Json:
    return {"requests": {"storage": size}}


# -- what is seen


async def claim_when(
    place: Place,
    what: str,
    is_so: Callable[[Json], object],
    *,
    name: str = "data",
    timeout_s: float = PATIENCE_S,
) -> Json:
    """Wait until a claim looks so; the claim."""
    last: Json = {}

    async def seen() -> Json | None:
        last.update(await place.api.get(f"{place.claims}/{name}"))
        return dict(last) if is_so(last) else None

    try:
        return await place.cluster.until(what, seen, timeout_s)
    except AssertionError as error:
        told = [(e["reason"], e["message"]) for e in await events(place, name=name)]
        raise AssertionError(f"{last.get('status')}\n{told}\n{error}") from error


async def has_size(
    place: Place, size: str, *, name: str = "data", timeout_s: float = PATIENCE_S
) -> Json:
    """Wait until a claim's status has a size; the claim."""
    return await claim_when(
        place, size, lambda c: capacity(c) == size, name=name, timeout_s=timeout_s
    )


async def volume_when(
    place: Place, what: str, volume_id: str, is_so: Callable[[Json], object]
) -> Json:
    """Wait until EC2 shows a volume so; the volume."""

    async def seen() -> Json | None:
        found = await place.cluster.volume(volume_id)
        return found if found is not None and is_so(found) else None

    return await place.cluster.until(what, seen)


def capacity(claim: Mapping[str, Any]) -> str:
    """``status.capacity.storage``."""
    return str(claim["status"]["capacity"]["storage"])


def resize_status(claim: Mapping[str, Any]) -> str:
    """``status.allocatedResourceStatuses.storage``, "" when there is none."""
    return str((claim["status"].get("allocatedResourceStatuses") or {}).get("storage", ""))


def conditions(claim: Mapping[str, Any]) -> dict[str, Json]:
    """By type, those that are true and about the volume.

    Whether a pod uses the claim is written by kube-controller-manager, from Kubernetes 1.37 on.
    """
    found = claim["status"].get("conditions") or ()
    true = {each["type"]: each for each in found if each["status"] == "True"}
    return {kind: each for kind, each in true.items() if kind != "Unused"}


def current_class(claim: Mapping[str, Any]) -> str:
    """``status.currentVolumeAttributesClassName``, "" when there is none."""
    return str(claim["status"].get("currentVolumeAttributesClassName") or "")


def modify_status(claim: Mapping[str, Any]) -> str:
    """``status.modifyVolumeStatus.status``, "" when there is none."""
    return str((claim["status"].get("modifyVolumeStatus") or {}).get("status", ""))


async def size_of(place: Place, pv: str) -> str:
    """``spec.capacity.storage`` of a persistent volume."""
    return str((await place.api.get(f"{PVS}/{pv}"))["spec"]["capacity"]["storage"])


async def modifies(place: Place, volume_id: str) -> list[Json]:
    """The parameters of every ModifyVolume for a volume, oldest first, without its id."""
    of_request = ("Action", "Version", "VolumeId")
    return [
        {key: value for key, value in call["params"].items() if key not in of_request}
        for call in await place.cluster.calls(volume_id, "ModifyVolume")
    ]


async def events(place: Place, reason: str = "", name: str = "data") -> list[Json]:
    """Events about a claim, whoever wrote them: the resizer's component is another one."""
    path = f"/api/v1/namespaces/{place.name}/events"
    found = await place.api.get(path, fieldSelector=f"involvedObject.name={name}")
    return [each for each in found["items"] if reason in {"", each["reason"]}]


async def told(
    place: Place, reason: str, *words: str, name: str = "data", timeout_s: float = PATIENCE_S
) -> Json:
    """Wait for an event about a claim of this reason that holds all of these words."""

    async def seen() -> Json | None:
        found = await events(place, reason, name)
        return next((e for e in found if all(w in e["message"] for w in words)), None)

    try:
        return await place.cluster.until(f"an event {reason} with {words}", seen, timeout_s)
    except AssertionError as error:
        said = [(e["reason"], e["message"]) for e in await events(place, name=name)]
        raise AssertionError(f"{said}\n{error}") from error


async def changed(
    place: Place, wanted: str, *, name: str = "data", timeout_s: float = PATIENCE_S
) -> Json:
    """Wait until a claim says that its volume is of a class, and that nothing is left to do."""
    claim = await claim_when(
        place,
        f"{name} is of {wanted}",
        lambda c: current_class(c) == wanted and modify_status(c) == "",
        name=name,
        timeout_s=timeout_s,
    )
    pv = await place.api.get(f"{PVS}/{claim['spec']['volumeName']}")
    assert pv["spec"]["volumeAttributesClassName"] == wanted
    assert not conditions(claim).keys() & {"ModifyingVolume", "ModifyVolumeError"}
    return claim


# -- kubelet


async def kubelet_grows(place: Place, name: str = "data") -> Json:
    """What kubelet does on the claim's node once the volume itself has grown; the claim.

    Source: Kubernetes 1.36 pkg/volume/util/operationexecutor/node_expander.go and
    pkg/volume/util/resize_util.go: MarkNodeExpansionInProgress, then MarkFSResizeFinished.
    """
    pending = "NodeResizePending"
    claim = await claim_when(place, pending, lambda c: resize_status(c) == pending, name=name)
    pv = await place.api.get(f"{PVS}/{claim['spec']['volumeName']}")
    size = pv["spec"]["capacity"]["storage"]
    in_progress: Json = {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}}
    await _write_status(place, name, lambda _: in_progress)

    def finished(now: Json) -> Json:
        kept = now["status"].get("conditions") or ()
        return {
            "capacity": {"storage": size},
            "allocatedResourceStatuses": {"storage": None},
            "conditions": [each for each in kept if each["type"] not in _OF_RESIZING],
        }

    return await _write_status(place, name, finished)


async def kubelet_gives_up(place: Place, name: str = "data") -> Json:
    """What kubelet writes when a file system can never grow: MarkNodeExpansionInfeasible."""
    pending = "NodeResizePending"
    await claim_when(place, pending, lambda c: resize_status(c) == pending, name=name)

    def infeasible(now: Json) -> Json:
        kept = now["status"].get("conditions") or ()
        error = {"type": "NodeResizeError", "status": "True", "message": "resize2fs: bad magic"}
        return {
            "allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"},
            "conditions": [*kept, error],
        }

    return await _write_status(place, name, infeasible)


async def _write_status(place: Place, name: str, change: Callable[[Json], Json]) -> Json:
    """As kubelet: with the version that was read, and again after a conflict."""
    path = f"{place.claims}/{name}"

    async def written() -> Json | None:
        now = await place.api.get(path)
        version = {"resourceVersion": now["metadata"]["resourceVersion"]}
        try:
            body = {"metadata": version, "status": change(now)}
            done: Json = await place.api.patch(f"{path}/status", body)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            return None
        return done

    return await place.cluster.until("kubelet's change of the claim's status", written)


async def tags_of(place: Place, volume_id: str) -> dict[str, str]:
    """The tags of a volume, as EC2 shows them."""
    volume = await place.cluster.volume(volume_id)
    assert volume is not None
    return {each["Key"]: each["Value"] for each in volume.get("Tags", ())}
