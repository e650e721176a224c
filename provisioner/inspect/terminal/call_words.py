"""How many calls AWS got, in words."""

from collections.abc import Mapping


def counted(calls: Mapping[str, int]) -> str:
    """Their number: "no calls to AWS", "1 call to AWS", "7 calls to AWS"."""
    number = sum(calls.values())
    return f"{number or 'no'} call{'' if number == 1 else 's'} to AWS"


def listed(calls: Mapping[str, int]) -> str:
    """The same with each action: "3 calls to AWS: DescribeInstances 1, DescribeVolumes 2"."""
    each = ", ".join(f"{action} {number}" for action, number in sorted(calls.items()))
    return f"{counted(calls)}: {each}" if each else counted(calls)
