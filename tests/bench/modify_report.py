"""What the bench says of claims that grow and change, and of snapshots."""

from statistics import median

from provisioner.ec2.look_rules import MOST_A_SECOND
from tests.bench.modify import MODIFY_S, Modified
from tests.bench.phases import Phase

_MOST_RATIO = 1.1
_MOST_DESCRIBES_PER_S = MOST_A_SECOND


def markdown(modified: Modified) -> str:
    """The part of the report."""
    grown, taken = modified.grown, modified.taken
    late_s = [each.seconds for each in modified.late]
    modified_calls, more_modifies = _calls(grown, "ModifyVolume")
    taken_calls, more_takes = _calls(taken, "CreateSnapshot")
    looks = max(each.looks for each in modified.late)
    return (
        f"## {grown.objects} claims grown and changed, {taken.objects} snapshots, "
        "at the documented quota\n\n"
        f"{grown.objects} expansions and {grown.objects} changes of attributes in "
        f"**{modified_calls}** (exactly {grown.objects}; {more_modifies}), done in "
        f"**{grown.seconds:.1f} s**, {grown.seconds / modified.floor_s:.3f} x the floor of "
        f"{modified.floor_s:.0f} s (at most {_MOST_RATIO} x): {modified.bucket_s:.0f} s of the "
        f"bucket, and {MODIFY_S:.0f} s in which EC2 modifies the last volume; "
        f"{_described(grown)}.\n\n"
        f"{taken.objects} snapshots in {taken_calls} ({more_takes}), the last ready after "
        f"{taken.seconds:.1f} s; from EC2's word to Kubernetes': median {median(late_s):.2f} s, "
        f"at most {max(late_s):.2f} s and **{looks} looks at it** (at most 1); "
        f"{_described(taken)}."
    )


def _calls(phase: Phase, action: str) -> tuple[str, str]:
    throttled, refused = (each.get(action, 0) for each in (phase.throttled, phase.refused))
    done = phase.calls.get(action, 0) - throttled - refused
    return f"{done} {action}", f"{throttled} calls more throttled, {refused} refused"


def _described(phase: Phase) -> str:
    return (
        f"{phase.describes / phase.seconds:.2f} describes a second "
        f"(at most {_MOST_DESCRIBES_PER_S}), machine used by others {phase.foreign:.0%}"
    )
