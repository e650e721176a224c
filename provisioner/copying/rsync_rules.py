"""With which options rsync runs, and what its endings mean.

Source: rsync(1) of 3.2 and 3.5, "EXIT VALUES" and "--itemize-changes" (read 2026-11-24).
"""

from collections.abc import Sequence

# All of a file but its times of access and birth: hard links, ACLs, attributes, holes, owners by
# number. What was begun before goes on; what is not in the source goes.
_ALL = ("-aHAXS", "--numeric-ids", "--delete", "--one-file-system")
# The node labels a volume for each of its pods, and lets no pod label it.
_LABELS = "--filter=-x security.selinux"
LOST_FOUND = "lost+found"
_NO_ROOM = 11  # "Error in file I/O"
_PARTIAL = 23  # "Partial transfer due to error"
_VANISHED = 24
_FINAL = frozenset({_NO_ROOM, _PARTIAL, _VANISHED})
_SHOWN = 3
_SHOWN_CHARACTERS = 300


def copy(source: str, target: str, *, leaves_lost_found: bool) -> list[str]:
    """The arguments for a copy.

    Args:
        source: the folder whose contents are copied.
        target: the folder that has them afterwards.
        leaves_lost_found: neither copy nor delete the folder that mkfs makes for fsck.
    """
    kept = [f"--exclude=/{LOST_FOUND}"] if leaves_lost_found else []
    return [*_ALL, _LABELS, *kept, f"{source.rstrip('/')}/", f"{target.rstrip('/')}/"]


def comparison(source: str, target: str, *, leaves_lost_found: bool) -> list[str]:
    """The arguments for a run that changes nothing and prints each difference, by checksum."""
    same = copy(source, target, leaves_lost_found=leaves_lost_found)
    return ["--checksum", "--dry-run", "--itemize-changes", *same]


def is_final(exit_code: int) -> bool:
    """Whether another run ends in the same way: files that cannot be read or written."""
    return exit_code in _FINAL


def failure(exit_code: int, errors: str) -> str:
    """What went wrong, in one sentence."""
    lines = [line for line in errors.splitlines() if line.strip()]
    told = "; ".join(lines[:_SHOWN])[:_SHOWN_CHARACTERS]
    return f"rsync could not copy all files (exit code {exit_code}): {told or 'it says nothing'}"


def differences(printed: str) -> str | None:
    """What differs after a copy, in one sentence; None if nothing does."""
    lines = [line for line in printed.splitlines() if line.strip()]
    if not lines:
        return None
    first = "; ".join(lines[:_SHOWN])[:_SHOWN_CHARACTERS]
    return f"{len(lines)} files differ from the old volume after they were copied: {first}"


def leaves_lost_found(names: Sequence[str] | None) -> bool:
    """Whether lost+found is left out: it is missing in the source, or empty as mkfs makes it.

    Args:
        names: what is in that of the source; None if there is none.
    """
    return not names
