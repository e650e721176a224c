"""Where a move is shown: on a terminal one line that changes, elsewhere a line for each news."""

import sys

import click

from provisioner.inspect.shell_words import with_cluster
from provisioner.inspect.terminal import screen
from provisioner.inspect.terminal.table_rules import cut
from provisioner.model.sentences import printable

_ERASE = "\r\x1b[K"


class Display:
    """Standard output.

    Args:
        flags: that name the cluster to kubectl, for commands in lines that stay.

    Attributes:
        is_live: whether lines can be written again: it is a terminal.
    """

    def __init__(self, flags: str = "") -> None:
        self.is_live = sys.stdout.isatty()
        self._flags = flags
        self._is_drawn = False

    def say(self, line: str, colour: str = "") -> None:
        """Print a line that stays; the colour is for a terminal."""
        self.clear()
        text = printable(with_cluster(line, self._flags))
        click.echo(screen.emphasized(text, colour) if colour else text)

    def draw(self, line: str) -> None:
        """Show a line until the next one; nothing where it could not be taken back."""
        if not self.is_live:
            return
        width = screen.width()
        # One character is left free: a full line would wrap, and stay.
        text = cut(printable(line), width - 1 if width else None)
        click.echo(f"{_ERASE}{text}", nl=False)
        self._is_drawn = True

    def clear(self) -> None:
        """Take the drawn line back."""
        if self._is_drawn:
            click.echo(_ERASE, nl=False)
            self._is_drawn = False


class SharedDisplay(Display):
    """Standard output where several moves are shown at once, each under a name."""

    def __init__(self, flags: str = "") -> None:
        super().__init__(flags)
        self._drawn: dict[str, str] = {}

    def part(self, name: str) -> "Part":
        """What shows one of them."""
        return Part(self, name)

    def draw_of(self, name: str, line: str) -> None:
        """Show a line beside those of the others; "" takes it away."""
        self._drawn.pop(name, None)
        if line:
            self._drawn[name] = line
        if self._drawn:
            self.draw(" | ".join(f"{key}: {self._drawn[key]}" for key in sorted(self._drawn)))
        else:
            self.clear()


class Part(Display):
    """A display that puts a name before all that it shows."""

    def __init__(self, shared: SharedDisplay, name: str) -> None:
        super().__init__()
        self._shared = shared
        self._name = name

    def say(self, line: str, colour: str = "") -> None:
        """Print a line that stays."""
        self._shared.say(f"{self._name}: {line}", colour)

    def draw(self, line: str) -> None:
        """Show a line until the next one."""
        self._shared.draw_of(self._name, line)

    def clear(self) -> None:
        """Take the drawn line back."""
        self._shared.draw_of(self._name, "")
