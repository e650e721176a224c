"""The pod that copies files or checks a volume for a VolumeMove, as far as its way to the end goes.

Source: Kubernetes 1.36 API reference, core/v1 PodStatus, ContainerStatus.
"""

import msgspec

from provisioner.model.claim import Condition
from provisioner.model.document import FullMeta
from provisioner.model.meta import KubeObject
from provisioner.model.pod import PodSpec


class Waiting(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``state.waiting`` of a container: why it does not run yet."""

    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``state.terminated``. ``message``: what it has left in its termination log."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``state`` or ``lastState``: one of them is set, or neither."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of ``status.containerStatuses``."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class CopyPodStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status``."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class CopyPod(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A Pod with its owners and the states of its containers."""

    metadata: FullMeta = FullMeta()
    spec: PodSpec = PodSpec()
    status: CopyPodStatus = CopyPodStatus()
