"""``ebs-provisioner node drain``: keep the node plugin until the node has no volumes any more.

This is the preStop hook of its pod. Without the plugin nothing can be unmounted, so on a node that
goes away Kubernetes would wait for six minutes before it detaches the volumes. On a node that stays
there is nothing to wait for: the plugin is only being restarted. A node that stays cordoned looks
like one that goes away, so a restart there takes the whole timeout.

It waits until the kubelet has unstaged the volumes, by its Node (``status.volumesInUse``, at most
10 s late) and by the mount table: leaked mounts are unmounted by the plugin (``leaked_mounts``).
After that the plugin is not needed, and the volumes can be detached.

Source: aws-ebs-csi-driver v1.64 docs (pre-stop hook); cluster-autoscaler's and Karpenter's taints;
Kubernetes "Node Shutdowns"; kubelet 1.36 pkg/kubelet/nodeshutdown, nodestatus (`ReadyCondition`
puts what it says among other reasons, in the message).
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import structlog

from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.model.taint import CORDONED, OUT_OF_SERVICE
from provisioner.node.instance.documents import NodeView
from provisioner.node.instance.kube import NodeKube
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.paths import noted_block_volume, noted_volume
from provisioner.node.runtime.sysfs import SystemDirs

_AGAIN_S = 1.0
_REFUSED = frozenset({Reason.FORBIDDEN, Reason.UNAUTHORIZED})
_REFUSALS = 3
"""An API server that has just started refuses, too."""
_GOING = frozenset(
    {
        CORDONED.key,
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",  # before Karpenter 1.0
        OUT_OF_SERVICE.key,
    }
)
# kubelet's, once systemd has notified it; then all pods end, the plugin's among the last.
_SHUTTING_DOWN = "node is shutting down"
# Beside the stages: kubelet's, with the raw block volumes of all CSI drivers.
_BLOCK_VOLUMES = "volumeDevices"

log = structlog.get_logger(__name__)


async def drain(kube: NodeKube, dirs: SystemDirs, stages: Path, *, timeout_s: float) -> None:
    """Return once the node is known to stay, or the kubelet uses no volume of this driver.

    While the API server does not answer, both are unknown, and the request is repeated. If it
    refuses three times, because the plugin is being uninstalled and its rights are gone, only
    volumes that are mounted here are waited for.

    Args:
        kube: reads the Node.
        dirs: where procfs is.
        stages: the directory in which the kubelet stages our volumes.
        timeout_s: how long to wait, in seconds.

    Raises:
        NodeError: TIMED_OUT, in one sentence.
    """
    waits_for = _Waits("the API server did not answer")
    try:
        async with asyncio.timeout(timeout_s):
            while (  # noqa: ASYNC110 -- there is no event to wait for
                pause_s := await _look(kube, dirs, stages, waits_for)
            ) is not None:
                await asyncio.sleep(pause_s)
    except TimeoutError as error:
        message = f"timed out after {timeout_s:.0f} s on node {kube.node_name}: {waits_for.why}"
        raise NodeError(Reason.TIMED_OUT, message) from error


@dataclass(slots=True)
class _Waits:
    """What is waited for, in words."""

    why: str
    refusals: int = 0  # one after the other


async def _look(kube: NodeKube, dirs: SystemDirs, stages: Path, waits_for: _Waits) -> float | None:
    """Look once; return after how many seconds to look again, None if there is no need to."""
    try:
        node = await _node(kube)
    except KubeError as error:
        waits_for.why = error.message
        waits_for.refusals = waits_for.refusals + 1 if error.reason in _REFUSED else 0
        is_for_good = waits_for.refusals >= _REFUSALS
        if is_for_good and not _left(None, kube.driver, dirs, stages):
            log.info("may not read the Node, and no volume is mounted", node=kube.node_name)
            return None
        log.warning("cannot read the Node; will retry", error=error.message)
        return max(_AGAIN_S, error.retry_after_s or 0.0)
    waits_for.refusals = 0
    if not (why := why_going(node)):
        log.info("the node stays, so there is nothing to wait for", node=kube.node_name)
        return None
    left = _left(node, kube.driver, dirs, stages)
    if not left:
        log.info("no volume is left on the node", node=kube.node_name, why=why)
        return None
    before, waits_for.why = waits_for.why, f"still in use: {', '.join(sorted(left))}"
    if waits_for.why != before:
        log.info("waiting for the volumes", why=why, volumes=sorted(left))
    return _AGAIN_S


def why_going(node: NodeView | None) -> str:
    """Why a node is considered to be going away; "" if it stays.

    None is a Node that does not exist any more.
    """
    if node is None:
        return "its Node is gone"
    if node.deleting:
        return "its Node is being deleted"
    if node.spec.unschedulable:
        return "it is cordoned"
    if node.ready.status == "False" and _SHUTTING_DOWN in node.ready.message:
        return "its machine is shut down"
    return next(
        (
            f"it has the taint {taint.key}"
            for taint in node.spec.taints or ()
            if taint.key in _GOING
        ),
        "",
    )


async def _node(kube: NodeKube) -> NodeView | None:
    try:
        return await kube.node()
    except KubeError as error:
        if error.reason is Reason.OBJECT_NOT_FOUND:
            return None
        raise


def _left(node: NodeView | None, driver: str, dirs: SystemDirs, stages: Path) -> frozenset[str]:
    in_use = node.in_use(driver) if node is not None else frozenset()
    try:
        table = mount_table_rules.parse((dirs.proc / "self" / "mountinfo").read_bytes())
    except (OSError, ValueError) as error:
        return in_use | {f"unknown, because the mount table cannot be read ({error})"}
    below, devices = f"{stages.resolve()}/", stages.parent / _BLOCK_VOLUMES
    mounted = {noted_volume(mount) or mount.path for mount in table if mount.path.startswith(below)}
    mapped = {noted_block_volume(mount, devices, driver) for mount in table}
    return in_use | mounted | (mapped - {""})
