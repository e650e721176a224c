"""CPU profiles of Kubernetes' programs: who is on the stack, by the share of samples.

Read are as many fields of pprof's format as that takes (``proto/profile.proto`` of google/pprof).
"""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import aiohttp

_PATH = "/debug/pprof/profile"
# Fields of a Profile; of its messages; and the wire's kind of what has a length.
_SAMPLE, _LOCATION, _FUNCTION, _STRING = 2, 4, 5, 6
_PLACES, _COUNTS = 1, 2  # of a Sample
_ID, _LINE, _NAME = 1, 4, 2  # of a Location, a Function; a Line's first is its function's
_BYTES = 2


@dataclass(frozen=True, slots=True)
class Profile:
    """Samples, each with its stack: the names of all functions on it, and how often it was seen."""

    samples: Sequence[tuple[frozenset[str], int]] = ()

    def share(self, part: str) -> float:
        """Of the samples, those with a function on the stack whose name has this in it."""
        total = sum(count for _, count in self.samples)
        some = sum(n for stack, n in self.samples if any(part in name for name in stack))
        return some / total if total else 0.0


def with_port(argv: Sequence[str], port: int, folder: str, path: str = _PATH) -> list[str]:
    """A program of the sandbox, which has no port, with one on loopback that tells one thing.

    Args:
        argv: of the sandbox.
        port: that is free.
        folder: for the certificate that it makes for itself.
        path: that anybody may ask.
    """
    others = [each for each in argv if not each.startswith("--secure-port=")]
    mine = [f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={folder}"]
    return [*others, *mine, f"--authorization-always-allow-paths={path}"]


async def taken(port: int, seconds: int) -> Profile:
    """A profile of the time from now on.

    Raises:
        aiohttp.ClientError: it does not answer.
    """
    timeout = aiohttp.ClientTimeout(total=seconds + 30)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"https://127.0.0.1:{port}{_PATH}?seconds={seconds}", ssl=False) as reply,
    ):
        reply.raise_for_status()
        return read(await reply.read())


def read(text: bytes) -> Profile:
    """What a profile says."""
    profile = _message(gzip.decompress(text))
    strings = [each.decode() for each in profile.texts(_STRING)]
    functions = {
        each.numbers(_ID)[0]: strings[each.numbers(_NAME)[0]]
        for each in profile.messages(_FUNCTION)
    }
    on_line = {
        each.numbers(_ID)[0]: [functions[line.numbers(_ID)[0]] for line in each.messages(_LINE)]
        for each in profile.messages(_LOCATION)
    }
    samples = []
    for each in profile.messages(_SAMPLE):
        stack = {name for place in each.numbers(_PLACES) for name in on_line[place]}
        samples.append((frozenset(stack), each.numbers(_COUNTS)[0]))
    return Profile(samples)


class _Message(dict[int, list[int | bytes]]):
    """The values of each field, by its number."""

    def texts(self, field: int) -> list[bytes]:
        return [each for each in self.get(field, ()) if isinstance(each, bytes)]

    def messages(self, field: int) -> list["_Message"]:
        return [_message(each) for each in self.texts(field)]

    def numbers(self, field: int) -> list[int]:
        """Of a repeated field, packed or not."""
        found: list[int] = []
        for each in self.get(field, ()):
            found += [each] if isinstance(each, int) else _varints(each)
        return found


def _message(text: bytes) -> _Message:
    found, at = _Message(), 0
    while at < len(text):
        key, at = _varint(text, at)
        value: int | bytes
        value, at = _varint(text, at)
        if key & 7 == _BYTES:
            size, value = value, text[at : at + value]
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def _varints(text: bytes) -> Iterator[int]:
    at = 0
    while at < len(text):
        number, at = _varint(text, at)
        yield number


def _varint(text: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = text[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
