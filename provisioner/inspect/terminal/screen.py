"""Where commands print: its width, its colours, and a sign of life on what takes longer."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import click
import msgspec

from provisioner.model.sentences import printable

_SILENT_FOR_S = 2.0
_FRAMES_PER_S = 4.0
_PLAIN_WIDTH = 100
_UNUSUAL = re.compile(r"[^\x00-\x7e]")  # JSON itself escapes what is below a space


def width() -> int | None:
    """Characters a line of standard output; None where it is no terminal, so nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def text_width() -> int:
    """Characters a line for sentences: the terminal's, at most 100, which are easy to read."""
    return min(width() or _PLAIN_WIDTH, _PLAIN_WIDTH)


def show(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    for line in lines:
        click.echo(line)


def show_json(value: object) -> None:
    """Print a value as JSON, indented, to standard output."""
    click.echo(json_text(value).encode())


def json_text(value: object) -> str:
    """A value as JSON, indented; characters that a terminal would obey are escaped.

    What is read here anybody may have written: an event's message, a volume's tag.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _UNUSUAL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    """A character as it is if it is a visible one, else as RFC 8259 writes it: in UTF-16."""
    if match[0].isprintable():
        return match[0]
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def warn(lines: Iterable[str]) -> None:
    """Print lines to standard error, so that what is piped stays clean.

    What a server has answered may be in them: characters that a terminal would obey are escaped.
    """
    for line in lines:
        click.echo(printable(line), err=True)


def emphasized(text: str, colour: str) -> str:
    """The text in a colour; as it is without a terminal, or with NO_COLOR (no-color.org)."""
    plain = not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))
    return text if plain else click.style(text, fg=colour, bold=True)


@asynccontextmanager
async def progress(what: str) -> AsyncIterator[None]:
    """Say on standard error what is being done if it takes over 2 s and somebody is looking."""
    if not sys.stderr.isatty():
        yield
        return
    telling = asyncio.create_task(_tell(what))
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def _tell(what: str) -> None:
    started = asyncio.get_running_loop().time()
    await asyncio.sleep(_SILENT_FOR_S)
    try:
        while True:
            passed_s = asyncio.get_running_loop().time() - started
            click.echo(f"\r{what} … {passed_s:.0f} s", err=True, nl=False)
            await asyncio.sleep(1 / _FRAMES_PER_S)
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)
