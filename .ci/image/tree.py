"""The files of a layer, and the layer as a tar archive that is the same on each machine."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

# A constant, or each build would have other layers. zip cannot tell a time before 1980.
MTIME: Final = 1_577_836_800  # 2020-01-01
_ALL_MAY_READ: Final = 0o755


@dataclass(frozen=True)
class Entry:
    """A file, a folder (no data), or a symbolic link."""

    mode: int
    data: bytes | None = None
    target: str = ""


Tree = dict[str, Entry]
"""Path, relative to the root of the image, to what is there."""


def from_tar(data: bytes, is_taken: Callable[[str], bool]) -> Tree:
    """Return what a Debian package brings: /usr merged, without rights that nobody needs here.

    Nothing is set-user-id, because the node plugin is root and nobody else mounts.
    """
    found: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            path = merged(member.name.removeprefix("./").rstrip("/"))
            if path in {"", "."} or not is_taken(path):
                continue
            if member.isdir():
                found.setdefault(path, Entry(member.mode & 0o1777))
            elif member.issym():
                found[path] = Entry(0o777, target=member.linkname)
            elif member.islnk():
                found[path] = found[merged(member.linkname.removeprefix("./"))]
            else:
                file = archive.extractfile(member)
                assert file is not None  # noqa: S101 -- packages hold no devices
                found[path] = Entry(member.mode & 0o777, file.read())
    return found


def merged(path: str) -> str:
    """Return where a path is once /bin, /sbin, /lib and /lib64 are links into /usr."""
    top = path.partition("/")[0]
    if path in {"bin", "sbin", "lib", "lib64"}:
        return f"usr/{path}"
    return f"usr/{path}" if top in {"bin", "sbin", "lib", "lib64"} else path


def from_folder(folder: Path, below: str, is_taken: Callable[[str], bool]) -> Tree:
    """Return the files of a folder, to be put ``below`` a path of the image."""
    found: Tree = {}
    for file in sorted(folder.rglob("*")):
        relative = file.relative_to(folder).as_posix()
        if not file.is_file() or not is_taken(relative):
            continue
        runs = file.stat().st_mode & stat.S_IXUSR
        found[f"{below}/{relative}"] = Entry(0o755 if runs else 0o644, file.read_bytes())
    return found


def write_to(folder: Path, tree: Mapping[str, Entry]) -> None:
    """Write a tree to disk; owners are not kept."""
    for path, entry in with_folders(tree).items():
        where = folder / path
        if entry.target:
            where.parent.mkdir(parents=True, exist_ok=True)
            where.symlink_to(entry.target)
        elif entry.data is None:
            where.mkdir(parents=True, exist_ok=True)
        else:
            where.write_bytes(entry.data)
            where.chmod(entry.mode | stat.S_IWUSR)


def with_folders(tree: Mapping[str, Entry]) -> Tree:
    """Return a tree with each folder that a path needs, the folders first.

    Bytecode follows its source: they share names and docstrings, and what compresses a layer looks
    back no further than 32 KiB. That saves 6 % of our own layer.
    """
    whole = dict(tree)
    for path in tree:
        for parent in PurePosixPath(path).parents:
            if str(parent) != ".":
                whole.setdefault(str(parent), Entry(_ALL_MAY_READ))
    return dict(sorted(whole.items(), key=lambda item: (_is_leaf(item[1]), _place(item[0]))))


def _place(path: str) -> tuple[str, bool]:
    folder, _, name = path.rpartition("/__pycache__/")
    source = f"{folder}/{name.partition('.')[0]}.py" if folder else path
    return source, bool(folder)


def without_empty_folders(tree: Mapping[str, Entry], kept: Iterable[str]) -> Tree:
    """Return a tree without the folders in which nothing is left; ``kept`` stay."""
    full = {str(parent) for path, one in tree.items() if _is_leaf(one) for parent in _above(path)}
    full.update(kept)
    return {path: one for path, one in tree.items() if _is_leaf(one) or path in full}


def _is_leaf(entry: Entry) -> bool:
    return entry.data is not None or bool(entry.target)


def _above(path: str) -> Iterable[PurePosixPath]:
    return PurePosixPath(path).parents


def to_tar(tree: Mapping[str, Entry]) -> bytes:
    """Return a layer: in the order of ``with_folders``, all owned by root, all of one time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, entry in with_folders(tree).items():
            info = tarfile.TarInfo(path)
            info.mode, info.mtime = entry.mode, MTIME
            if entry.target:
                info.type, info.linkname = tarfile.SYMTYPE, entry.target
                archive.addfile(info)
            elif entry.data is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(entry.data)
                archive.addfile(info, io.BytesIO(entry.data))
    return buffer.getvalue()
