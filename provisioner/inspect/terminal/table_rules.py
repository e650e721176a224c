"""Tables as kubectl prints them: columns as wide as their cells, three spaces apart, no lines."""

from collections.abc import Iterable, Sequence

from provisioner.model.sentences import printable

NOTHING = "-"
_APART = "   "
_CUT = "…"


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None
) -> list[str]:
    """The lines of a table.

    Args:
        headings: in capitals, as kubectl has them.
        rows: a cell for each heading; characters that a terminal would obey are escaped.
        width: of the terminal, in characters: longer lines lose the end of their last column.
            None for a file or a pipe, where nothing is lost.
    """
    cells = [tuple(headings), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        _APART.join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return [cut(line, width) for line in lines]


def cut(line: str, width: int | None) -> str:
    """A line that fits, its end replaced by an ellipsis where it does not."""
    if width is None or len(line) <= width:
        return line
    return line[: max(width - 1, 0)] + _CUT


def wrapped(text: str, *, width: int, indent: str = "") -> list[str]:
    """A sentence in lines of at most ``width`` characters; a longer word gets a line of its own."""
    lines: list[str] = []
    line = ""
    for word in printable(text).split():
        longer = f"{line} {word}" if line else word
        if line and len(indent) + len(longer) > width:
            lines.append(indent + line)
            line = word
        else:
            line = longer
    return [*lines, indent + line] if line else lines
