"""Every sentence of the product that a user may read, found in its syntax trees.

Events, conditions, refusals, ``attachError``, gRPC errors, answers of the webhook and what
``class check`` says are made of string literals. All literals of three words and more are taken,
except docstrings, log lines and the help of options and metrics; so a new sentence cannot be missed.

``[a|b]`` is one of two, ``[a]`` is there or not, and ``{name}`` is filled in.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from provisioner.model.errors import Reason
from tests.documents import ROOT

# They end in log lines, in the output of --help and in patterns; not in what is said of an object.
_NOT_MESSAGES = re.compile(
    r"debug|info|warning|error|exception|_warn_once|_?option|compile"
    r"|\w+MetricFamily|_?[cC]ounter|_?[gG]auge|_?[hH]istogram"
)
_NOT_KEYWORDS = {"help", "description", "epilog", "name"}
_NOT_FILES = re.compile(
    r"sandbox/|csi/wire/|/(cli|commands|options|metrics|limit_table|error_codes|collector|reasons)\.py"
)
_REASONS = {reason.name: reason.value for reason in Reason}
_FEWEST_WORDS, _MOST_WORDS = 3, 15

Texts = Mapping[str, ast.expr]


@dataclass(frozen=True, slots=True)
class Message:
    """One sentence, or a part of one that several are made of."""

    path: Path
    line: int
    text: str
    reason: str  # "" for none that stands beside it


@dataclass(slots=True)
class _File:
    """What has to be known to read one file's literals."""

    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    inlined: set[ast.AST] = field(default_factory=set)


@cache
def markdown(*folders: str) -> str:
    """A heading for each folder that says something, and a table of what it says."""
    told: dict[str, list[str]] = {}
    for each in messages(folders):
        row = f"| {_escaped(each.text)} | {f'`{each.reason}`' if each.reason else ''} |"
        told.setdefault(str(each.path.parent), []).append(row)
    return "\n\n".join(
        f"## `{folder}/`\n\n| message | reason |\n|---|---|\n" + "\n".join(dict.fromkeys(rows))
        for folder, rows in told.items()
    )


def messages(folders: tuple[str, ...]) -> list[Message]:
    """Those of some folders or files of the product, in the order of the source."""
    paths = [
        path
        for name in folders
        for path in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py")))
        if not _NOT_FILES.search(str(path.relative_to(ROOT)))
    ]
    return [each for path in paths for each in read(path.read_text(), path.relative_to(ROOT))]


def read(source: str, path: Path) -> list[Message]:
    """The sentences of one file."""
    tree = ast.parse(source)
    file = _File()
    for node in ast.walk(tree):
        file.parents.update(dict.fromkeys(ast.iter_child_nodes(node), node))
    file.constants = _assigned(tree.body)
    found = list(_found(tree, file, {}))
    sentences = [
        Message(path, node.lineno, _tidy(text), _reason(node, file.parents))
        for node, text in found
        if node not in file.inlined
    ]
    return [each for each in sentences if _is_sentence(each.text)]


def _found(node: ast.AST, file: _File, names: Texts) -> Iterator[tuple[ast.expr, str]]:
    """The outermost texts in a piece of code, with what they say."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = {arg.arg for arg in [*node.args.args, *node.args.kwonlyargs]}
        own = _assigned(list(ast.walk(node)))
        names = {**names, **{name: own[name] for name in own.keys() - given}}
    if isinstance(node, _TEXTS) and (text := _text(node, file, names)) is not None:
        yield node, text
        return
    if _is_no_message(node):
        return
    for child in ast.iter_child_nodes(node):
        yield from _found(child, file, names)


def _is_no_message(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Assert():
            return True
        case ast.keyword(arg=str(name)):
            return name in _NOT_KEYWORDS
        case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="split")):
            return True
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return _NOT_MESSAGES.fullmatch(name) is not None
    return False


def _assigned(nodes: list[ast.stmt] | list[ast.AST]) -> dict[str, ast.expr]:
    """Names that one assignment gives a text: they are read where they are used."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in nodes:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
                | ast.AugAssign(target=ast.Name(id=name), value=value)
            ):
                found.setdefault(name, []).append(value)
    return {
        name: values[0]
        for name, values in found.items()
        if len(values) == 1 and isinstance(values[0], _TEXTS)
    }


_TEXTS = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.IfExp)


def _text(node: ast.expr, file: _File, names: Texts) -> str | None:
    """What an expression says; None if it is no text."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_part(value, file, names) for value in values)
        case ast.FormattedValue(value=value):
            return _text(value, file, names)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = [_text(left, file, names), _text(right, file, names)]
            if sides == [None, None]:
                return None
            return _part(left, file, names) + _part(right, file, names)
        case ast.IfExp(body=body, orelse=other):
            sides = [_text(body, file, names), _text(other, file, names)]
            if sides == [None, None]:
                return None
            return f"[{'|'.join(each for s in (body, other) if (each := _part(s, file, names)))}]"
        case ast.Name(id=name) if name in names or name in file.constants:
            value = names.get(name) or file.constants[name]
            return _text(value, file, {key: each for key, each in names.items() if key != name})
    return None


def _part(node: ast.expr, file: _File, names: Texts) -> str:
    """What a part of a text says, or its name in braces."""
    if isinstance(node, ast.FormattedValue):
        node = node.value
    if isinstance(node, ast.Name) and (value := names.get(node.id, file.constants.get(node.id))):
        file.inlined.add(value)
    said = _text(node, file, names)
    return said if said is not None else f"{{{_short(node)}}}"


def _short(node: ast.expr) -> str:
    """A name for what is filled in."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").lower()
        case ast.Call(func=ast.Attribute(value=ast.Constant()), args=[first, *_]):
            return _short(first)
        case ast.Call(func=ast.Name(id="len"), args=[first]):
            return f"number of {_short(first)}"
        case ast.Call(args=[first, *_]) if not isinstance(first, ast.Constant | ast.Lambda):
            return _short(first)
        case ast.Call(func=func):
            return _short(func)
        case ast.Subscript(value=value) | ast.UnaryOp(operand=value) | ast.Starred(value=value):
            return _short(value)
        case ast.BinOp(left=left) | ast.BoolOp(values=[left, *_]):
            return _short(left)
        case ast.GeneratorExp(elt=value) | ast.ListComp(elt=value) | ast.NamedExpr(value=value):
            return _short(value)
    return "…"


def _reason(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> str:
    """The reason that stands in the same call, or in the one that gets the text by its name."""
    above: ast.AST | None = node
    name = ""
    while above is not None and not isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(above, ast.Call) and (reason := _reason_in(above)):
            return reason
        if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
            name = above.targets[0].id
        above = parents.get(above)
    for call in ast.walk(above) if above is not None and name else ():
        if isinstance(call, ast.Call) and _takes(name, call) and (reason := _reason_in(call)):
            return reason
    return ""


def _takes(name: str, call: ast.Call) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in call.args)


def _reason_in(call: ast.Call) -> str:
    for each in [*call.args, *(keyword.value for keyword in call.keywords)]:
        match each:
            case ast.Attribute(attr=attr) if attr in _REASONS:
                return _REASONS[attr]
            case ast.Constant(value=str(value)) if re.fullmatch(r"[A-Z]\w+[a-z][A-Z]\w+", value):
                return value
    return ""


def _is_sentence(text: str) -> bool:
    """Whether it has a few words, two of which are not names. Lists of names have no punctuation."""
    words = text.split()
    if len(words) > _MOST_WORDS and not re.search(r"[,.;:{]", text):
        return False
    literal = re.findall(r"(?<![\w-])[a-z']{2,}(?![\w-])", re.sub(r"\{[^}]*\}", "", text))
    return len(words) >= _FEWEST_WORDS and len(literal) >= _FEWEST_WORDS - 1


def _escaped(text: str) -> str:
    return re.sub(r"([|*<\\])", r"\\\1", text)


def _tidy(text: str) -> str:
    return " ".join(text.split())
