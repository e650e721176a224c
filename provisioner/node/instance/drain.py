"""``ebs-provisioner node drain``: keep the node plugin until the node's volumes are off it.

As the preStop hook of its pod. Without the plugin nothing on the node can be unmounted any more, so
on a node that goes away its end would leave volumes to Kubernetes' six minutes of waiting. On one
that stays there is nothing to wait for: the plugin is only being restarted. A node that is cordoned
and stays cannot be told from one that goes: there a restart waits for its whole time.

Waited for is that the kubelet has unstaged them, which its Node says (``status.volumesInUse``, at
most its 10 s late), and the kernel's table: what it has forgotten the plugin unmounts
(``forgotten``). Then the plugin is not needed any more, and the volumes can be detached.

Source: aws-ebs-csi-driver v1.64 docs (pre-stop hook); cluster-autoscaler's and Karpenter's taints;
Kubernetes "Node Shutdowns"; kubelet 1.36 pkg/kubelet/nodeshutdown, nodestatus (`ReadyCondition`
puts what it says among other reasons, in the message).
"""

import asyncio
from pathlib import Path

import structlog

from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.model.taint import CORDONED, OUT_OF_SERVICE
from provisioner.node.instance.documents import NodeView
from provisioner.node.instance.kube import NodeKube
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.paths import noted_volume
from provisioner.node.runtime.sysfs import SystemDirs

_AGAIN_S = 1.0
_GOING = frozenset(
    {
        CORDONED.key,
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",  # before Karpenter 1.0
        OUT_OF_SERVICE.key,
    }
)
# kubelet's, once systemd has told it; each pod ends then, the plugin's among the last.
_SHUTTING_DOWN = "node is shutting down"

log = structlog.get_logger(__name__)


async def drain(kube: NodeKube, dirs: SystemDirs, stages: Path, *, timeout_s: float) -> None:
    """Return once the node stays, or the kubelet uses none of this driver's volumes any more.

    While the API server cannot be asked, both are unknown, and it is asked again.

    Args:
        kube: reads the Node.
        dirs: where procfs is.
        stages: the folder in which the kubelet has our volumes staged.
        timeout_s: how long, in seconds.

    Raises:
        NodeError: TIMED_OUT, in one sentence.
    """
    waits_for, told = "the API server did not answer", ""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    node = await _node(kube)
                except KubeError as error:
                    waits_for = error.message
                    log.warning("cannot look; will try again", error=error.message)
                    await asyncio.sleep(max(_AGAIN_S, error.retry_after_s or 0.0))
                    continue
                if not (why := why_going(node)):
                    log.info("the node stays: nothing to wait for", node=kube.node_name)
                    return
                left = _left(node, kube.driver, dirs, stages)
                if not left:
                    log.info("no volume is left", node=kube.node_name, why=why)
                    return
                waits_for = f"still in use are {', '.join(sorted(left))}"
                if waits_for != told:
                    log.info("the node goes away", why=why, volumes=sorted(left))
                told = waits_for
                await asyncio.sleep(_AGAIN_S)
    except TimeoutError as error:
        message = f"gave up after {timeout_s:.0f} s on node {kube.node_name}: {waits_for}"
        raise NodeError(Reason.TIMED_OUT, message) from error


def why_going(node: NodeView | None) -> str:
    """What shows that a node is going away, in short; "" if it stays.

    None stands for a Node that the API server itself lacks.
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
        return in_use | {f"what is mounted, which cannot be read ({error})"}
    below = f"{stages.resolve()}/"
    mounted = [each for each in table if each.path.startswith(below)]
    return in_use | {noted_volume(mount) or mount.path for mount in mounted}
