"""Tables as kubectl prints them: columns as wide as their cells, three spaces apart, no lines."""

from collections.abc import Iterable, Sequence

from provisioner.model.sentences import printable

NOTHING = "-"
_APART = "   "
_CUT = "…"
_LEAST = 12  # characters of a column that is shortened


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    width: int | None = None,
    shrink: str = "",
) -> list[str]:
    """The lines of a table.

    Args:
        headings: in capitals, as kubectl has them.
        rows: a cell for each heading; characters that a terminal would obey are escaped.
        width: of the terminal, in characters: longer lines lose the end of their last column.
            None for a file or a pipe, where nothing is lost.
        shrink: the heading of a column that is shortened first, so that the last ones stay.
    """
    cells = [tuple(headings), *(tuple(map(printable, row)) for row in rows)]
    if width is not None and shrink in headings:
        cells = _shortened(cells, headings.index(shrink), width)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        _APART.join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return [cut(line, width) for line in lines]


def _shortened(cells: Sequence[tuple[str, ...]], column: int, width: int) -> list[tuple[str, ...]]:
    """The same cells, those of one column no longer than the lines' width leaves them."""
    widths = [max(map(len, each)) for each in zip(*cells, strict=True)]
    others = sum(widths) - widths[column] + len(_APART) * (len(widths) - 1)
    left = max(width - others, _LEAST)
    return [(*row[:column], cut(row[column], left), *row[column + 1 :]) for row in cells]


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
