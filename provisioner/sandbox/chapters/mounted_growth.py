"""A claim is edited to be larger while a pod on a real node uses it, and the pod sees it."""

from __future__ import annotations

from provisioner.sandbox import kubectl
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.stage import CLAIMS, PODS, Stage

TITLE = "A file system grows under a running pod"

_LARGER = '{"spec": {"resources": {"requests": {"storage": "40Gi"}}}}'
_WAS_KIB = 30 * 2**20
"""What ``df`` shows of 40 GiB is more, whatever the file system needs of it for itself."""


async def tell(stage: Stage) -> None:
    """Tell it, after the chapter in which the pod ``diary`` was put on another node.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    before = await _container(stage)
    await teller.kubectl("patch", "pvc", "diary", f"--patch={_LARGER}")

    async def grown() -> bool:
        return await _size_kib(stage) > _WAS_KIB

    await teller.until("the pod sees more than 30 GiB", grown)
    await teller.kubectl("exec", "diary", "--", "df", "-h", "/data")

    async def told() -> bool:
        status = (await stage.api.get(f"{CLAIMS}/diary"))["status"]
        return (status["capacity"]["storage"], status.get("conditions")) == ("40Gi", None)

    await teller.until("the claim says so too", told)
    await teller.kubectl("get", "pvc", "diary")
    if await _container(stage) != before:
        raise SandboxError("the pod's container is not the one that it was")
    teller.seen("its container is the same as before")


async def _size_kib(stage: Stage) -> int:
    """The size of the file system, as the pod sees it; 0 if it does not answer."""
    command = ("exec", "diary", "--", "df", "-k", "/data")
    status, said, _ = await kubectl.run(stage.sandbox.plane, *command)
    return 0 if status else int(said.splitlines()[-1].split()[1])


async def _container(stage: Stage) -> tuple[str, int]:
    """Its id, and how often it was started again."""
    pod = await stage.api.get(f"{PODS}/diary")
    (status,) = pod["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]
