"""What a copy of files tells its controller, in the termination message of its pod."""

import msgspec

REPORT_PATH = "/dev/termination-log"
"""What a container writes there is its termination message.

Source: Kubernetes 1.36 core/v1 ``Container.terminationMessagePath``.
"""


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a copy ended.

    Attributes:
        done: everything is copied, and was compared by checksum.
        refused: why it cannot be done, in one sentence; nothing helps but another wish.
        files: how many files, folders and links there are, each hard link once.
        bytes: the room that they take.
        seconds: how long it took.
    """

    done: bool = False
    refused: str = ""
    files: int = 0
    bytes: int = 0
    seconds: int = 0


def encoded(report: CopyReport) -> str:
    """The report as JSON."""
    return msgspec.json.encode(report).decode()


def decoded(text: str) -> CopyReport | None:
    """The report that a pod has left; None if it is none."""
    try:
        return msgspec.json.decode(text, type=CopyReport)
    except msgspec.DecodeError:
        return None
