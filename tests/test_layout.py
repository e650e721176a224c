"""The shape of the product, held over its syntax trees: who may import whom, and how long."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path.relative_to(ROOT)
    for name in ("provisioner", "webhook")
    for path in ROOT.glob(f"{name}/**/*.py")
    if not path.stem.endswith("_pb2")  # generated
)
MOST_LINES = 600
MOST_LINES_A_FUNCTION = 60
LONG = 40

# Part of the house -> parts that it may import besides itself. A part is a package or a module of
# ``provisioner``, or ``webhook``, whose rules are parts of their own.
ALLOWED = {
    "model": set(),
    "decide": {"model"},
    "metrics": set(),
    "logs": set(),
    "process": {"model"},
    "settings": {"model"},
    # What all command lines share.
    "options": {"model", "ec2"},
    # What the API server's answers mean; "kube" and the node's small client read it.
    "kube_failures": {"model"},
    "kube": {"kube_failures", "model", "metrics"},
    "ec2": {"model", "metrics"},
    # "edges": what flows share, made once; of flows it knows nothing.
    "reconcile": {"decide", "model", "kube", "ec2", "metrics", "settings", "edges"},
    "edges": {"reconcile", "kube", "ec2", "metrics", "settings"},
    # "process", "logs" and "options": as all our programs. Nothing that loads boto3 or
    # kubernetes: it runs on every node.
    "node": {"model", "decide", "kube_failures", "logs", "process", "options"},
    "webhook.model": {"model"},
    # "decide": what a class can do is said once, for claims and for whoever creates the class.
    "webhook.decide": {"webhook.model", "model", "decide"},
    # "logs" and "options": one form of log lines and of options for all our programs.
    "webhook": {
        *(
            "webhook.model",
            "webhook.decide",
            "model",
            "decide",
            "kube",
            "metrics",
            "process",
            "ec2",
        ),
        *("logs", "options", "region"),
    },
    "sandbox": {"model"},
    # The Region of AWS: each program that asks EC2 finds it by the same code.
    "region": {"decide", "model", "kube", "ec2", "process"},
    "app": {
        *("reconcile", "model", "kube", "ec2", "metrics", "process", "settings", "logs"),
        *("edges", "region"),
    },
    # `class check`: a class, from a file or the cluster, and what is said of it.
    "class_check": {"decide", "model", "kube"},
    # `volumes`: what the API server wants and EC2 has, as a table.
    "volumes_table": {"model", "kube", "ec2", "metrics", "region"},
    # A developer's command that writes the table of attachment limits.
    "limit_table": {"decide", "model"},
    "cli": {
        *(
            "app",
            "class_check",
            "volumes_table",
            "node",
            "sandbox",
            "ec2",
            "model",
            "logs",
            "settings",
            "options",
        ),
    },
    "": set(),
}
# More than LONG lines, and better in one piece: statements one after the other, or one table.
LONG_FUNCTIONS = {
    "provisioner/app.py": {"__init__"},
    "provisioner/cli.py": {"controller"},
    "provisioner/metrics.py": {"__init__"},
    "provisioner/ec2/botocore_client.py": {"connect"},
    "provisioner/node/commands.py": {"node"},
    "provisioner/reconcile/creation.py": {"advance"},
    "provisioner/sandbox/up.py": {"start"},
    "webhook/app.py": {"__init__"},
    "webhook/cli.py": {"serve"},
}
# Doors to the outside, to the clock and to chance.
OUTSIDE = {
    "aiohttp",
    "asyncio",
    "boto3",
    "botocore",
    "kubernetes",
    "os",
    "random",
    "socket",
    "structlog",
    "time",
}
# The packages that decide and never act, of each of our programs.
RULES = ("model", "decide")
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Offenders = dict[str, list[str]]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def part_of(module: str) -> str:
    """The part of the house that a module of ours belongs to; "" is ``provisioner`` itself."""
    root, _, rest = module.partition(".")
    package = rest.partition(".")[0]
    if root == "webhook":
        return f"{root}.{package}" if package in RULES else root
    return package


def part_at(path: Path) -> str:
    return part_of(".".join(path.with_suffix("").parts).removesuffix(".__init__"))


def imported_by(tree: ast.Module) -> Iterator[str]:
    """The full name of all that a file imports, also within functions or by a name as text."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                yield from (f"{'.' * level}{module or ''}.{alias.name}" for alias in aliases)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if (
                "import_module" in ast.dump(function)
            ):
                yield name


def strangers_to(part: str, tree: ast.Module) -> list[str]:
    ours = [
        name for name in imported_by(tree) if name.partition(".")[0] in {"provisioner", "webhook"}
    ]
    return sorted(name for name in ours if part_of(name) not in {part, *ALLOWED[part]})


def functions_longer_than(lines: int, tree: ast.Module) -> list[Function]:
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return [node for node in functions if (node.end_lineno or 0) - node.lineno >= lines]


def offenders(found: Callable[[Path], Iterable[str]], files: Iterable[Path] = FILES) -> Offenders:
    return {path.as_posix(): names for path in files if (names := sorted(found(path)))}


def test_there_is_a_product_of_known_parts():
    assert len(FILES) > 50
    assert {part_at(path) for path in FILES} <= ALLOWED.keys()


def test_imports_go_in_the_directions_of_the_design():
    assert offenders(lambda path: strangers_to(part_at(path), tree_of(path))) == {}


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("model", "from provisioner.decide import zones"),
        ("decide", "import provisioner.ec2.calls"),
        ("decide", "def f():\n    from provisioner.kube import client"),
        ("kube", "from provisioner import ec2"),
        ("ec2", "import webhook.server"),
        ("reconcile", "importlib.import_module('provisioner.sandbox.up')"),
        ("node", "from provisioner.kube.client import KubeClient"),
        ("webhook", "from provisioner.reconcile.caches import Caches"),
        ("webhook.model", "from webhook.decide import pod"),
        ("webhook.decide", "from webhook import caches"),
        ("webhook.decide", "from provisioner.kube.client import KubeClient"),
    ],
)
def test_an_import_in_another_direction_is_found(part, line):
    assert len(strangers_to(part, ast.parse(line))) == 1


def test_nothing_is_imported_by_a_relative_name():
    assert (
        offenders(lambda path: [n for n in imported_by(tree_of(path)) if n.startswith(".")]) == {}
    )


def test_what_decides_never_acts():
    rules = [path for path in FILES if path.parts[1] in RULES]
    acts = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)

    def actions(path: Path) -> list[str]:
        return [type(node).__name__ for node in ast.walk(tree_of(path)) if isinstance(node, acts)]

    def doors(path: Path) -> set[str]:
        return {name.partition(".")[0] for name in imported_by(tree_of(path))} & OUTSIDE

    assert len(rules) > 20
    assert {path.parts[0] for path in rules} == {"provisioner", "webhook"}
    assert offenders(actions, rules) == {}
    assert offenders(doors, rules) == {}


def test_no_file_is_longer_than_one_can_read_at_once():
    lines = {path.as_posix(): len((ROOT / path).read_text().splitlines()) for path in FILES}

    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_functions_are_short():
    def long(path: Path) -> set[str]:
        names = {node.name for node in functions_longer_than(LONG, tree_of(path))}
        return names - LONG_FUNCTIONS.get(path.as_posix(), set())

    assert offenders(long) == {}


def test_the_longest_functions_have_no_branch():
    def branching(path: Path) -> list[str]:
        longest = functions_longer_than(MOST_LINES_A_FUNCTION, tree_of(path))
        return [n.name for n in longest if any(isinstance(part, BRANCHES) for part in ast.walk(n))]

    assert offenders(branching) == {}


@pytest.mark.parametrize(
    "module", ["provisioner.model", "provisioner.decide", "webhook.model", "webhook.decide"]
)
def test_the_rules_load_neither_aws_nor_kubernetes(module):
    modules = [
        ".".join(path.with_suffix("").parts)
        for path in FILES
        if path.as_posix().startswith(module.replace(".", "/"))
    ]
    script = f"import sys, {', '.join(modules)}; print(*sys.modules)"

    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "provisioner" in loaded
    assert not loaded & {"boto3", "botocore", "kubernetes", "aiohttp", "structlog"}
