"""Names of objects, from the cluster, while somebody writes one; nothing is said on a failure."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

from provisioner.inspect.command_line import target_so_far
from provisioner.inspect.completion import answer_rules
from provisioner.inspect.object_name_rules import KINDS
from provisioner.kube.resources import (
    CLAIMS,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_SNAPSHOTS,
    Resource,
)
from provisioner.model.errors import StorageError

_PATIENCE_S = 2.0
_NONE: Mapping[str, Iterable[str]] = MappingProxyType({})
_MOST = 500  # one page: nobody chooses among more
_RESOURCES: dict[str, Resource[Any]] = {
    "pod": PODS,
    "pvc": CLAIMS,
    "pv": PERSISTENT_VOLUMES,
    "node": NODES,
    "snapshot": VOLUME_SNAPSHOTS,
}


def object_words(
    kinds: Iterable[str] = KINDS, others: Mapping[str, Iterable[str]] = _NONE
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What may follow in ``KIND NAME``: kinds, and then names of that kind.

    Args:
        kinds: of objects.
        others: what else may be named: names by the word before them.
    """

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        words = tuple(ctx.params.get(param.name or "") or ())
        match words:
            case ():
                found: Iterable[str] = (*kinds, *others)
            case (word,) if word in others:
                found = others[word]
            case (word,) if answer_rules.kind_of(word) in kinds:
                found = _names_now(ctx, answer_rules.kind_of(word))
            case _:
                found = ()
        return [CompletionItem(each) for each in answer_rules.matching(found, incomplete)]

    return complete


def names_of(
    resource: Resource[Any],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What may follow an option that takes the name of an object of a namespace."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = answer_rules.matching(_now(_names(ctx, resource)), incomplete)
        return [CompletionItem(each) for each in found]

    return complete


def _names_now(ctx: click.Context, kind: str) -> list[str]:
    return _now(_names(ctx, _RESOURCES[kind], is_cluster_wide=kind in {"pv", "node"}))


def _now(names: Coroutine[Any, Any, list[str]]) -> list[str]:
    try:
        return asyncio.run(names)
    except (StorageError, TimeoutError, OSError):
        return []


async def _names(
    ctx: click.Context, resource: Resource[Any], *, is_cluster_wide: bool = False
) -> list[str]:
    """Names in the namespace that is meant, or of all objects of a kind without namespaces."""
    target = target_so_far(ctx.params)
    where = "" if is_cluster_wide else target.default_namespace or "default"
    async with asyncio.timeout(_PATIENCE_S):
        async with await target.connect() as client:
            listing = await client.list(resource, namespace=where, most=_MOST)
    return [each.name for each in listing.items]
