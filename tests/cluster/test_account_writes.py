"""What the policies of the manifests let our accounts write. SECURITY.md names these tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio
import yaml

from provisioner.sandbox.installation import MANIFESTS
from tests.cluster.account_writes import (
    ATTACHMENT,
    CONTENT,
    ORPHANED,
    SNAPSHOT,
    WRITES,
    Write,
)
from tests.cluster.background import Background
from tests.cluster.replicas import eventually
from tests.cluster.thief import KINDS, Thief, a_thief
from tests.policy_clauses import without_a_clause

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

POLICIES: list[Json] = [
    each
    for folder in (MANIFESTS, MANIFESTS / "webhook", MANIFESTS / "volume-moves")
    for each in yaml.safe_load_all((folder / "policy.yaml").read_text())
    if each["kind"] == "ValidatingAdmissionPolicy"
]
AT_ONCE = 30


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def thief(background: Background) -> AsyncIterator[Thief]:
    async with a_thief(background) as ready:
        yield ready


@pytest.mark.parametrize("write", WRITES, ids=str)
async def test_an_account_writes_what_is_its_own_and_nothing_else(thief: Thief, write: Write):
    assert await thief.answer(write) == write.answer


@pytest.mark.parametrize("path", [ATTACHMENT, SNAPSHOT, CONTENT])
async def test_a_status_that_no_policy_is_about_carries_no_owner(thief: Thief, path: str):
    answer = await thief.api.patch(f"{path}/status", ORPHANED, dryRun="All")

    assert "ownerReferences" not in answer["metadata"]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy["metadata"]["name"]))
async def test_the_types_of_a_policys_expressions_are_right(thief: Thief, policy: Json):
    path = f"{KINDS[policy['kind']]}/{policy['metadata']['name']}"

    async def checked() -> Json | None:
        found = await thief.api.get(path)
        status: Json = found.get("status", {})
        return (
            status if status.get("observedGeneration") == found["metadata"]["generation"] else None
        )

    assert (await eventually("it is checked", checked))["typeChecking"] == {}


async def test_each_clause_of_the_policies_decides_about_a_write(thief: Thief):
    """Without a clause, one of the writes is answered otherwise; else nothing shows what it is for."""
    originals = {f"p{index}": policy for index, policy in enumerate(POLICIES)}
    mutants = {
        f"{name}-{index}": changed
        for name, policy in originals.items()
        for index, changed in enumerate(without_a_clause(policy))
    }
    unseen = set(mutants)
    for some in in_parts(mutants):
        async with thief.with_policies(originals | {name: mutants[name][1] for name in some}):
            warned = await asyncio.gather(*(thief.warned(write) for write in WRITES))
        unseen -= {
            name
            for name in some
            for refusing in warned
            if (name in refusing) != (name.partition("-")[0] in refusing)
        }

    assert [f"{name_of(originals, each)}: {mutants[each][0]}" for each in sorted(unseen)] == []


def in_parts(mutants: Iterable[str]) -> list[list[str]]:
    """Some of each policy at a time: what one write can be told is limited."""
    parts: dict[int, list[str]] = {}
    for name in mutants:
        parts.setdefault(int(name.partition("-")[2]) // AT_ONCE, []).append(name)
    return list(parts.values())


def name_of(originals: dict[str, Json], mutant: str) -> str:
    return str(originals[mutant.partition("-")[0]]["metadata"]["name"])
