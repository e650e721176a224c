"""Volumes go to and fro between real nodes while all that moves them is killed."""

from __future__ import annotations

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node.cycles import Cycles
from provisioner.sandbox.stage import Stage

TITLE = "Attach, write, detach, while node plugin, kubelet, containerd and controller are killed"

_SEED = 7
_CYCLES = 5
_VOLUMES = 3


async def tell(stage: Stage) -> None:
    """Tell it, after a chapter in which real nodes were uncordoned.

    Raises:
        SandboxError: a byte was lost, or something was left behind, or not seen.
    """
    teller = stage.teller
    teller.aside(
        f"{_CYCLES} times, a pod is put on one of the two nodes, checks everything that was ever "
        "written to its volume, writes another file, and ends; with ext4 and xfs. EC2 answers "
        "immediately during this."
    )
    cycles = Cycles(
        stage.sandbox,
        "cycles",
        _SEED,
        say=lambda what: teller.aside(" ".join(what.replace(".ec2.internal", "").split())),
    )
    await stage.control(latency="none")
    try:
        report = await cycles.run(_CYCLES, _VOLUMES)
    except (AssertionError, BaseExceptionGroup) as failure:
        raise SandboxError(f"the cycles failed: {_essence(failure)}") from failure
    finally:
        await stage.control(latency="real")
    if not report.is_well:
        found = [*report.formatted_anew, *report.torn, *report.forgotten, *report.left]
        raise SandboxError(f"the cycles left something behind: {found}; {report}")
    teller.seen(str(report))


def _essence(failure: BaseException) -> str:
    """What failed first; groups are how tasks fail together."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return str(failure) or type(failure).__name__
