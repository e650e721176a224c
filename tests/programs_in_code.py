"""The programs that the node plugin runs, read from its source."""

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

from provisioner import __file__ as package_file
from provisioner.model.file_systems import FILE_SYSTEMS
from provisioner.node.runtime.programs import PATH

PACKAGE = Path(package_file).parent
_MKFS = "mkfs."


def programs_of_the_node() -> set[str]:
    """All names that begin a command line in the code, and are programs of a Linux machine.

    A command line is a tuple, or the arguments of a call, that begins with a text and goes on with an
    option or with what is no text; or the name of a maker of file systems, which is put together.
    """
    named: set[str] = set()
    for path in sorted((PACKAGE / "node").rglob("*.py")):
        named |= set(_begin_command_lines(ast.parse(path.read_text())))
    return {name for name in named if name.startswith(_MKFS) or shutil.which(name, path=PATH)}


def _begin_command_lines(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.Tuple(elts=[ast.Constant(value=str(name)), second, *_])
                | ast.Call(
                    func=ast.Attribute(attr="run" | "_run"),
                    args=[ast.Constant(value=str(name)), second, *_],
                )
            ) if not isinstance(second, ast.Constant) or str(second.value).startswith("-"):
                yield name
            case ast.JoinedStr(values=[ast.Constant(value=str(name)), ast.FormattedValue()]) if (
                name == _MKFS
            ):
                yield from (f"{_MKFS}{each}" for each in FILE_SYSTEMS)
