"""What the bench says of claims that grow and change, and of snapshots."""

from statistics import median

from tests.bench.modify import POLL_S, Modified
from tests.bench.phases import Phase

_MOST_RATIO = 1.1
_MOST_DESCRIBES_PER_S = 1.5


def markdown(modified: Modified) -> str:
    """The part of the report."""
    grown, taken = modified.grown, modified.taken
    ratio = grown.seconds / modified.floor_s if modified.floor_s else float("nan")
    late_s = sorted(modified.late_s)
    return (
        f"## {grown.objects} claims grown and changed, {taken.objects} snapshots, "
        "at the documented quota\n\n"
        f"{grown.objects} expansions and {grown.objects} changes of attributes in "
        f"**{_calls(grown, 'ModifyVolume')}** (exactly {grown.objects}), done in "
        f"**{grown.seconds:.1f} s**, {ratio:.3f} x the bucket's floor of {modified.floor_s:.0f} s "
        f"(at most {_MOST_RATIO} x); {_described(grown)}.\n\n"
        f"{taken.objects} snapshots in {_calls(taken, 'CreateSnapshot')}, the last ready after "
        f"{taken.seconds:.1f} s; from EC2's word to Kubernetes': median {median(late_s):.2f} s, "
        f"at most **{late_s[-1]:.2f} s** (one poll is {POLL_S:.0f} s); {_described(taken)}."
    )


def _calls(phase: Phase, action: str) -> str:
    throttled = phase.throttled.get(action, 0)
    return f"{phase.calls.get(action, 0)} {action} calls, {throttled} of them throttled"


def _described(phase: Phase) -> str:
    return (
        f"{phase.describes / phase.seconds:.2f} describes a second "
        f"(at most {_MOST_DESCRIBES_PER_S}), machine used by others {phase.foreign:.0%}"
    )
