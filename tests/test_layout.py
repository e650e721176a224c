"""The shape of the product, held over its syntax trees: who may import whom, and how long."""

import ast
import re
import subprocess
import sys
from collections import Counter
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
MOST_FILES = 17
MOST_LINES_A_FUNCTION = 60
LONG = 40

# Part -> parts that it may import besides itself and GROUND. A part is a
# module or a package of ``provisioner`` or ``webhook``; in the packages of STORIES it is a module or
# a package of theirs.
STORIES = ("controller", "inspect", "node", "webhook")
GROUND = {"model", "metrics", "logs", "clock", "slices", "tell_once", "version"}
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "version": set(),
    "metrics": {"version"},
    "logs": set(),
    "clock": set(),
    "slices": set(),
    "tell_once": {"clock"},
    "process": set(),
    # What the API server's answers mean; "kube" and the node's small client read it.
    "kube.failures": set(),
    "kube": {"kube.failures"},
    "ec2": set(),
    # What all command lines share.
    "options": {"ec2"},
    # The Region of AWS: each program that asks EC2 finds it by the same code.
    "region": {"kube", "ec2", "process"},
    "classes": set(),
    # What EBS costs, for the controller's metric and for kubectl ebs.
    "prices": set(),
    # -- the controller, story by story: each may import those that its line names
    "controller.shared": {"kube", "ec2"},
    "controller.claims": {"controller.shared", "kube"},
    "controller.ownership": {"controller.shared", "ec2"},
    "controller.tagging": {"controller.shared", "ec2"},
    "controller.costs": {"controller.shared", "ec2", "prices"},
    "controller.placement": {
        *("controller.claims", "controller.ownership"),
        *("controller.shared", "kube", "ec2", "classes"),
    },
    "controller.sources": {
        *("controller.claims", "controller.ownership", "controller.placement"),
        *("controller.shared", "kube", "ec2", "classes"),
    },
    "controller.modifying": {"controller.shared", "kube", "ec2", "classes"},
    "controller.provisioning": {
        *("controller.claims", "controller.ownership", "controller.placement"),
        *("controller.sources", "controller.modifying"),
        *("controller.shared", "kube", "ec2", "classes"),
    },
    "controller.attaching": {"controller.shared", "kube", "ec2"},
    # Its volumes are made like all others.
    "controller.moving": {
        *("controller.claims", "controller.placement", "controller.provisioning"),
        *("controller.shared", "kube", "ec2", "classes", "prices"),
    },
    "controller.snapshotting": {"controller.shared", "kube", "ec2"},
    # A new volume is no orphan while the attempt that made it is under way.
    "controller.deleting": {"controller.provisioning", "controller.shared", "kube"},
    "controller.nodes": {"controller.shared", "kube", "ec2"},
    "controller.app": {
        *("controller.attaching", "controller.costs", "controller.deleting"),
        *("controller.modifying", "controller.moving", "controller.nodes"),
        *("controller.ownership", "controller.provisioning"),
        *("controller.shared", "controller.snapshotting", "controller.tagging"),
        *("kube", "ec2", "process", "region"),
    },
    # -- the node plugin, which loads neither boto3 nor kubernetes: it runs on every node
    "node.requests": set(),
    "node.runtime": set(),
    "node.devices": {"node.runtime"},
    "node.instance": {"node.requests", "node.runtime", "kube.failures"},
    "node.formatting": {"node.devices", "node.instance", "node.runtime", "classes"},
    "node.metrics": {"node.devices", "node.instance", "node.runtime"},
    "node.mounting": {
        *("node.devices", "node.formatting", "node.instance", "node.requests", "node.runtime"),
    },
    "node.csi": {
        *("node.formatting", "node.instance", "node.metrics", "node.mounting", "node.requests"),
    },
    "node.settings": {"node.instance", "node.runtime"},
    "node.app": {
        *("node.csi", "node.formatting", "node.instance", "node.metrics", "node.mounting"),
        *("node.runtime", "node.settings", "process"),
    },
    "node.commands": {"node.app", "node.instance", "node.settings", "options"},
    # -- the webhook
    "webhook.model": set(),
    "webhook.metrics": set(),
    # "inspect.classes": what a class can do is said once, for claims and for whoever creates the class.
    "webhook.reviews": {
        *("webhook.model", "webhook.metrics", "classes", "inspect.classes", "kube", "ec2"),
    },
    "webhook.repairs": {"webhook.reviews", "webhook.model", "webhook.metrics", "kube"},
    "webhook.certificates": {"webhook.model", "webhook.metrics", "kube"},
    "webhook.serving": {"webhook.settings", "webhook.model", "webhook.metrics", "process"},
    "webhook.settings": set(),
    "webhook.app": {
        *("webhook.certificates", "webhook.metrics", "webhook.repairs", "webhook.reviews"),
        *("webhook.serving", "webhook.settings"),
        *("kube", "ec2", "process", "region"),
    },
    "webhook.cli": {"webhook.app", "webhook.settings", "options"},
    "webhook": set(),
    # -- commands
    "inspect.terminal": set(),
    "inspect.object_name_rules": set(),
    "inspect.shell_words": set(),
    "inspect.reading": {"kube", "ec2", "region"},
    "inspect.command_line": {"inspect.reading", "inspect.shell_words", "kube", "options"},
    "inspect.classes": {
        *("classes", "controller.placement", "controller.provisioning", "kube"),
    },
    "inspect.limit_table": {"controller.nodes"},
    "inspect.df": {
        *("inspect.command_line", "inspect.reading", "inspect.terminal", "kube", "options"),
    },
    "inspect.cost": {
        *("inspect.command_line", "inspect.df", "inspect.orphans", "inspect.reading"),
        *("inspect.terminal", "ec2", "kube", "prices"),
    },
    "inspect.doctor": {
        *("inspect.classes", "inspect.command_line", "inspect.reading", "inspect.shell_words"),
        *("inspect.terminal", "classes", "controller.deleting", "ec2", "kube"),
    },
    "inspect.orphans": {
        *("inspect.command_line", "inspect.reading", "inspect.terminal"),
        *("ec2", "kube", "options"),
    },
    "inspect.quota": {"inspect.command_line", "inspect.reading", "inspect.terminal"},
    "inspect.history": {
        "inspect.completion",
        *("inspect.command_line", "inspect.object_name_rules", "inspect.reading"),
        *("inspect.terminal", "ec2", "kube"),
    },
    "inspect.volumes": {
        *("inspect.command_line", "inspect.df", "inspect.terminal", "ec2", "kube"),
    },
    "inspect.completion": {
        *("inspect.command_line", "inspect.commands", "inspect.object_name_rules", "kube"),
    },
    # It decides by the rules by which the controller works.
    "inspect.explain": {
        "inspect.completion",
        *("inspect.command_line", "inspect.object_name_rules", "inspect.reading"),
        *("inspect.shell_words", "inspect.terminal", "classes", "ec2", "kube"),
        *("controller.claims",),
        *("controller.modifying", "controller.nodes", "controller.placement"),
        "controller.provisioning",
    },
    # Its commands are loaded by name, when they are asked for; one of them, that of VolumeMoves,
    # changes something.
    "inspect.commands": {"options"},
    "moves": {
        *("inspect.command_line", "inspect.completion", "inspect.object_name_rules"),
        *("inspect.reading", "inspect.shell_words", "inspect.terminal", "kube"),
        # How full a claim is that is to get a smaller volume.
        "inspect.df",
    },
    "inspect": set(),
    "conformance": {"ec2", "kube"},
    # What the pod of a VolumeMove runs; it reads the mount table as the node plugin does.
    "copying": {"node.runtime"},
    "sandbox": set(),
    # The commands of the node plugin and the sandbox are loaded by name, when they are asked for.
    "cli": {
        *("controller.app", "controller.shared", "inspect.classes", "options"),
    },
    "controller": set(),
    "node": set(),
    "": set(),
}
# More than LONG lines, and better in one piece: statements one after the other, or one table.
LONG_FUNCTIONS = {
    "provisioner/cli.py": {"controller"},
    "provisioner/conformance/commands.py": {"aws"},
    "provisioner/metrics.py": {"__init__"},
    "provisioner/ec2/botocore_client.py": {"connect"},
    "provisioner/sandbox/up.py": {"start"},
    "webhook/app.py": {"__init__"},
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
# What decides and never acts, by the name of its folder or file.
RULES = re.compile(r"(^|/)(model/.*|node/requests|([a-z_]+_)?(rules|words))\.py$")
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Offenders = dict[str, list[str]]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def part_of(module: str) -> str:
    """The part of the house that a module of ours belongs to; "" is ``provisioner`` itself."""
    names = module.split(".")
    if names[0] == "provisioner":
        names = names[1:]
    if module.startswith("provisioner.kube.failures"):
        return "kube.failures"
    return ".".join(names[:2] if names and names[0] in STORIES else names[:1])


def part_at(path: Path) -> str:
    return part_of(".".join(path.with_suffix("").parts).removesuffix(".__init__"))


def is_rule(path: Path) -> bool:
    return RULES.search(path.as_posix()) is not None and "sandbox" not in path.parts


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
    ground = GROUND if part not in GROUND else {"model"}
    allowed = {part, *ground, *ALLOWED[part]}
    return sorted(name for name in ours if part_of(name) not in allowed)


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


def test_no_direction_is_allowed_that_nobody_goes():
    gone: dict[str, set[str]] = {}
    for path in FILES:
        names = imported_by(tree_of(path))
        ours = {part_of(name) for name in names if name.startswith(("provisioner.", "webhook."))}
        gone.setdefault(part_at(path), set()).update(ours)

    idle = {part: sorted(allowed - gone.get(part, set())) for part, allowed in ALLOWED.items()}
    assert {part: parts for part, parts in idle.items() if parts} == {}


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("model", "from provisioner.classes import in_tree_rules"),
        ("classes", "import provisioner.ec2.calls"),
        (
            "controller.placement",
            "from provisioner.controller.provisioning.flow import Provisioner",
        ),
        ("controller.attaching", "from provisioner.controller.deleting import rules"),
        ("controller.shared", "def f():\n    from provisioner.controller.claims import events"),
        ("kube", "from provisioner import ec2"),
        ("ec2", "import webhook.serving.server"),
        ("controller.deleting", "importlib.import_module('provisioner.sandbox.up')"),
        ("node.instance", "from provisioner.kube.client import KubeClient"),
        ("node.runtime", "from provisioner.node.mounting import mounts"),
        ("webhook.reviews", "from provisioner.controller.shared.caches import Caches"),
        ("webhook.model", "from webhook.reviews import pod_rules"),
    ],
)
def test_an_import_in_another_direction_is_found(part, line):
    assert len(strangers_to(part, ast.parse(line))) == 1


def test_nothing_is_imported_by_a_relative_name():
    assert (
        offenders(lambda path: [n for n in imported_by(tree_of(path)) if n.startswith(".")]) == {}
    )


def test_what_decides_never_acts():
    rules = [path for path in FILES if is_rule(path)]
    acts = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)

    def actions(path: Path) -> list[str]:
        return [type(node).__name__ for node in ast.walk(tree_of(path)) if isinstance(node, acts)]

    def doors(path: Path) -> set[str]:
        return {name.partition(".")[0] for name in imported_by(tree_of(path))} & OUTSIDE

    assert len(rules) > 60
    assert {path.parts[0] for path in rules} == {"provisioner", "webhook"}
    assert offenders(actions, rules) == {}
    assert offenders(doors, rules) == {}


def test_what_decides_rests_on_nothing_but_rules():
    known = {".".join(path.with_suffix("").parts): is_rule(path) for path in FILES}

    def acting(path: Path) -> set[str]:
        names = imported_by(tree_of(path))
        modules = {name if name in known else name.rpartition(".")[0] for name in names}
        return {name for name in modules & known.keys() if not known[name]}

    assert offenders(acting, [path for path in FILES if is_rule(path)]) == {}


def test_no_file_is_longer_than_one_can_read_at_once():
    lines = {path.as_posix(): len((ROOT / path).read_text().splitlines()) for path in FILES}

    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_functions_are_short():
    def long(path: Path) -> set[str]:
        names = {node.name for node in functions_longer_than(LONG, tree_of(path))}
        return names - LONG_FUNCTIONS.get(path.as_posix(), set())

    assert offenders(long) == {}


def test_each_long_function_that_is_named_is_long():
    idle = {
        path: names - {each.name for each in functions_longer_than(LONG, tree_of(Path(path)))}
        for path, names in LONG_FUNCTIONS.items()
    }

    assert {path: names for path, names in idle.items() if names} == {}


def test_the_longest_functions_have_no_branch():
    def branching(path: Path) -> list[str]:
        longest = functions_longer_than(MOST_LINES_A_FUNCTION, tree_of(path))
        return [n.name for n in longest if any(isinstance(part, BRANCHES) for part in ast.walk(n))]

    assert offenders(branching) == {}


def test_the_rules_load_neither_aws_nor_kubernetes():
    modules = [".".join(path.with_suffix("").parts) for path in FILES if is_rule(path)]
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


def test_no_folder_holds_more_files_than_one_can_look_over():
    """The nouns that all stories share and the edges are flat on purpose."""
    flat = {Path("provisioner/model"), Path("provisioner/ec2")}
    files = [path for path in FILES if "sandbox" not in path.parts and path.name != "__init__.py"]
    count = Counter(path.parent for path in files if path.parent not in flat)

    assert {str(folder): number for folder, number in count.items() if number > MOST_FILES} == {}
