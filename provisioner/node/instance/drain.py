"""``ebs-provisioner node drain``: keep the node plugin until the node's volumes are off it.

As the preStop hook of its pod. Without the plugin nothing on the node can be unmounted any more, so
on a node that goes away its end would leave volumes to Kubernetes' six minutes of waiting. On one
that stays there is nothing to wait for: the plugin is only being restarted. A node that is cordoned
and stays cannot be told from one that goes: there a restart waits for its whole time.

Waited for is that the kubelet has unstaged them, which its Node says (``status.volumesInUse``, at
most its 10 s late), and the kernel's table: what it has forgotten the plugin unmounts
(``forgotten``). Then the plugin is not needed any more, and the volumes can be detached.
"""

import asyncio
from pathlib import Path

import structlog

from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.node.instance.documents import NodeView
from provisioner.node.instance.drain_rules import why_going
from provisioner.node.instance.kube import NodeKube
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.paths import noted_volume
from provisioner.node.runtime.sysfs import Roots

_AGAIN_S = 1.0

log = structlog.get_logger(__name__)


async def drain(kube: NodeKube, roots: Roots, stages: Path, *, timeout_s: float) -> None:
    """Return once the node stays, or the kubelet uses none of this driver's volumes any more.

    While the API server cannot be asked, both are unknown, and it is asked again.

    Args:
        kube: reads the Node.
        roots: where procfs is.
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
                left = _left(node, kube.driver, roots, stages)
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


async def _node(kube: NodeKube) -> NodeView | None:
    try:
        return await kube.node()
    except KubeError as error:
        if error.reason is Reason.OBJECT_NOT_FOUND:
            return None
        raise


def _left(node: NodeView | None, driver: str, roots: Roots, stages: Path) -> frozenset[str]:
    in_use = node.in_use(driver) if node is not None else frozenset()
    try:
        table = mount_table_rules.parse((roots.proc / "self" / "mountinfo").read_bytes())
    except (OSError, ValueError) as error:
        return in_use | {f"what is mounted, which cannot be read ({error})"}
    below = f"{stages.resolve()}/"
    mounted = [each for each in table if each.path.startswith(below)]
    return in_use | {noted_volume(mount) or mount.path for mount in mounted}
