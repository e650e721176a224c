"""What the pod of a VolumeMove tells its controller, in its termination message."""

from typing import TypeVar

import msgspec

T = TypeVar("T")
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


class CheckReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """What a node found on a new volume.

    Attributes:
        file_system: its type, as the kernel names it.
        uuid: of the file system; "" where the kernel does not tell.
        refused: why it cannot be read, in one sentence; "" if it can.
        node: the name of the node, which the controller adds.
    """

    file_system: str = ""
    uuid: str = ""
    refused: str = ""
    node: str = ""


def encoded(report: CopyReport | CheckReport) -> str:
    """The report as JSON."""
    return msgspec.json.encode(report).decode()


def decoded(text: str, kind: type[T]) -> T | None:
    """The report of a kind that a pod has left; None if it is none."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None
