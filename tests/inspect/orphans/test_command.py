"""``kubectl ebs orphans``: the line that applies a plan, and where a plan is refused or ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.inspect.command_line import Target
from provisioner.inspect.orphans import apply, command
from provisioner.inspect.orphans.look import Own, Seen
from provisioner.inspect.orphans.orphan_plan_rules import plan
from provisioner.kube.impersonation_rules import Impersonation
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.meta import KubeObject, ObjectMeta
from tests.inspect.orphans.test_orphan_plan_rules import ACCOUNT, AROUND, ORPHAN, planned


async def test_who_interrupts_a_deletion_is_told_where_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    @asynccontextmanager
    async def reading(_: Target) -> AsyncIterator[None]:
        yield None

    async def fresh(*_: object) -> None:
        pass

    async def carry_out_plan(*_: object) -> None:
        raise asyncio.CancelledError  # what Ctrl-C becomes

    monkeypatch.setattr(command, "reading", reading)
    monkeypatch.setattr(apply, "fresh", fresh)
    monkeypatch.setattr(apply, "carry_out_plan", carry_out_plan)
    target = Target(None, None, "", "ebs.csi.aws.com", None)

    with pytest.raises(asyncio.CancelledError):
        await command._apply(target, planned(), tmp_path / "plan", sure=True)

    assert capsys.readouterr().err == (
        f"interrupted: {tmp_path}/plan.outcome has what was deleted until then; run it again for "
        "the rest\n"
    )


@pytest.mark.parametrize(
    ("target", "flags"),
    [
        (Target("of $KUBECONFIG", None, "shop", "ebs.csi.aws.com", None), ""),
        (
            Target(
                *("my b", "b", "", "ebs.csi.aws.com", "eu-west-1"),
                impersonate=Impersonation("ann", "7", ("sre",)),
                given_kubeconfig="my b",
            ),
            " --region eu-west-1 --as ann --as-group sre --as-uid 7 --context b --kubeconfig 'my b'",
        ),
    ],
)
def test_a_plan_is_applied_by_a_line_that_names_the_same_cluster(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    target: Target,
    flags: str,
):
    path = tmp_path / "what is left"

    command._write(target, path, planned(), Seen([ORPHAN], AROUND))

    line = f"After you have looked at it: kubectl ebs orphans --apply '{path}'{flags}"
    assert capsys.readouterr().out.splitlines()[-1] == line


def beside(monkeypatch: pytest.MonkeyPatch, uid: str | KubeError) -> Any:
    """Readers of a cluster with this UID, or which does not tell it; nothing else can be asked."""

    async def account(_: object) -> str:
        return ACCOUNT

    async def get(*_: object) -> KubeObject:
        if isinstance(uid, KubeError):
            raise uid
        return KubeObject(metadata=ObjectMeta(uid=uid))

    monkeypatch.setattr(apply, "account_of", account)
    return SimpleNamespace(
        cluster=SimpleNamespace(client=SimpleNamespace(get=get)),
        cloud=SimpleNamespace(region="us-east-1"),
    )


async def test_nothing_is_deleted_beside_another_cluster_than_that_of_the_plan(
    monkeypatch: pytest.MonkeyPatch,
):
    """Its PersistentVolumes do not spare what the other one uses by now."""
    with pytest.raises(StorageError, match=r"beside another cluster, .* --context"):
        await apply.fresh(beside(monkeypatch, "another"), planned())


async def test_nothing_is_deleted_where_the_cluster_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch,
):
    forbidden = KubeError(Reason.FORBIDDEN, "cannot get namespaces kube-system: ann may not")

    with pytest.raises(StorageError, match=r"cannot be told which one is asked: .* ann may not"):
        await apply.fresh(beside(monkeypatch, forbidden), planned())


async def test_a_cluster_that_is_left_out_is_named_with_what_shows_that_it_lives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    @asynccontextmanager
    async def reading(_: Target) -> AsyncIterator[Any]:
        yield SimpleNamespace(cloud=SimpleNamespace(region="us-east-1"))

    async def side(_: object) -> None:
        pass

    async def own(*_: object, **__: object) -> Own:
        return Own(seen.pop(), {"prod": "instance i-0 has its tag and is no node here"})

    seen = [[], [Seen([ORPHAN], AROUND)]]
    monkeypatch.setattr(command, "reading", reading)
    monkeypatch.setattr(command, "cluster_side", side)
    monkeypatch.setattr(command, "look_at_own", own)
    target = Target(None, None, "", "ebs.csi.aws.com", None)
    line = (
        "cluster prod is left out: its tag is on volumes here, but it seems to be another, living "
        "one (instance i-0 has its tag and is no node here); if it is this one, give --cluster-id "
        "prod"
    )

    assert await command._list(target, "", "table", min_age_s=60.0) == 0
    shown = capsys.readouterr()
    with pytest.raises(StorageError) as refused:
        await command._list(target, "", "table", min_age_s=60.0)

    assert (ORPHAN.volume_id in shown.out, shown.err) == (True, f"{line}\n")
    assert refused.value.message == line


def test_the_json_of_orphans_commands_no_terminal():
    odd = replace(ORPHAN, tags={**ORPHAN.tags, "team": "a\x9b2J"})

    lines = command._shown([plan([odd], AROUND, region="us-east-1")], "json")

    assert '"a\\u009b2J"' in "".join(lines)
