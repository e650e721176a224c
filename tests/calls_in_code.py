"""What the product's code calls, read from its source: the other side of RBAC and IAM."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from provisioner.kube import lease, resources
from provisioner.kube.resources import Resource

RESOURCES: dict[str, Resource[Any]] = {
    name: each
    for module in (resources, lease)
    for name, each in vars(module).items()
    if isinstance(each, Resource)
}
# The methods of KubeClient that send something, and what RBAC calls it.
_VERBS = {
    "get": ("get",),
    "list": ("list",),
    "create": ("create",),
    "patch": ("patch",),
    "replace": ("update",),
    "delete": ("delete",),
    "watch": ("watch",),
    # Not of KubeClient, but made of it.
    "Informer": ("list", "watch"),
    "Projection": ("list", "watch"),
    "find": ("get",),
    "_find": ("get",),
    "patch_status": ("patch",),
}
_NOT_THE_CONTROLLER = ("sandbox", "node", "conformance", "inspect", "moves")
# Where the kind is a variable: the informer itself, and caches.py, whose kinds are named where
# their informers are made and where _find is called.
# Or where patch_status is called.
_KIND_IN_A_VARIABLE = {"kube/informer.py", "kube/client.py", "controller/shared/caches.py"}

Right = tuple[str, str, str]


def kubernetes_rights(package: Path) -> set[Right]:
    """All (group, resource, verb) that the controller asks the API server for.

    Raises:
        AssertionError: a request whose kind this reader cannot tell.
    """
    rights: set[Right] = set()
    for path, tree in _sources(package):
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            kinds = [arg.id for arg in call.args if isinstance(arg, ast.Name)]
            known = [RESOURCES[kind] for kind in kinds if kind in RESOURCES]
            if known and (verbs := _VERBS.get(_name(call.func))):
                plural = "/".join([known[0].plural, *_subresource(call)])
                rights |= {(known[0].group, plural, verb) for verb in verbs}
            elif _is_sent_by_client(call) and str(path) not in _KIND_IN_A_VARIABLE:
                raise AssertionError(f"{path}:{call.lineno}: which kind is this?")
    return rights


def ec2_actions(package: Path) -> set[str]:
    """All actions that EC2 is asked for."""
    return {
        call.args[0].value
        for _, tree in _sources(package)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _name(call.func) == "call" and call.args
        if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    }


def _sources(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        if inside.parts[0] not in _NOT_THE_CONTROLLER:
            yield inside, ast.parse(path.read_text())


def _is_sent_by_client(call: ast.Call) -> bool:
    """``self._client.patch(…)``, ``client.patch(…)``."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in _VERBS
        and _name(call.func.value) in {"client", "_client"}
    )


def _name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _subresource(call: ast.Call) -> list[str]:
    if _name(call.func) == "patch_status":
        return ["status"]
    return [
        str(word.value.value)
        for word in call.keywords
        if word.arg == "subresource" and isinstance(word.value, ast.Constant)
    ]
