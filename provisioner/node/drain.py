"""``ebs-provisioner node drain``: keep the node plugin until the node's volumes are off it.

As the preStop hook of its pod. Without the plugin nothing on the node can be unmounted any more, so
on a node that goes away its end would leave volumes to Kubernetes' six minutes of waiting. On one
that stays there is nothing to wait for: the plugin is only being restarted. A node that is cordoned
and stays cannot be told from one that goes: there a restart waits for its whole time.
"""

import asyncio
from contextlib import aclosing

import structlog

from provisioner.decide.draining import why_going
from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.model.node_view import AttachmentView, NodeView
from provisioner.node.kube import NodeKube

_AGAIN_S = 1.0

log = structlog.get_logger(__name__)


async def drain(kube: NodeKube, *, timeout_s: float) -> None:
    """Return once the node stays, or none of this driver's attachments to it is left.

    While the API server cannot be asked, both are unknown, and it is asked again.

    Raises:
        NodeError: TIMED_OUT, in one sentence, after ``timeout_s``.
    """
    drain = _Drain(kube)
    try:
        async with asyncio.timeout(timeout_s):
            await drain.run()
    except TimeoutError as error:
        message = f"gave up after {timeout_s:.0f} s on node {kube.node_name}: {drain.waits_for}"
        raise NodeError(Reason.TIMED_OUT, message) from error


class _Drain:
    """``waits_for`` says what for, for people."""

    def __init__(self, kube: NodeKube) -> None:
        self._kube = kube
        self.waits_for = "the API server did not answer"

    async def run(self) -> None:
        why = why_going(await self._node())
        if not why:
            log.info("the node stays: nothing to wait for", node=self._kube.node_name)
            return
        log.info("the node goes away", node=self._kube.node_name, why=why)
        while True:
            if await self._is_empty():
                return
            await asyncio.sleep(_AGAIN_S)

    async def _node(self) -> NodeView | None:
        while True:
            try:
                return await self._kube.node()
            except KubeError as error:
                if error.reason is Reason.OBJECT_NOT_FOUND:
                    return None
                await self._again(error)

    async def _is_empty(self) -> bool:
        """Whether all attachments are gone; False, too, if that has to be looked up anew."""
        try:
            found, version = await self._kube.attachments()
            left = {each.name: each for each in found}
            if not self._are_left(left):
                return True
            async with aclosing(self._kube.watch_attachments(version)) as changes:
                async for kind, attachment in changes:
                    left.pop(attachment.name, None)
                    if kind != "DELETED":
                        left[attachment.name] = attachment
                    if not self._are_left(left):
                        return True
        except KubeError as error:
            await self._again(error)
        return False

    def _are_left(self, left: dict[str, AttachmentView]) -> bool:
        names = sorted(each.persistent_volume or each.name for each in left.values())
        self.waits_for = f"still attached are {', '.join(names)}"
        if left:
            log.info("waiting for volumes to be detached", volumes=names)
        else:
            log.info("no volume is left")
        return bool(left)

    async def _again(self, error: KubeError) -> None:
        log.warning("cannot look; will try again", error=error.message)
        self.waits_for = error.message
        await asyncio.sleep(max(_AGAIN_S, error.retry_after_s or 0.0))
