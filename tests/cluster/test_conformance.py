"""``conformance aws --context``: the worked example in a cluster with real nodes, as a user runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from provisioner.conformance.cluster.example import Example
from provisioner.conformance.cluster.hand import Hand
from provisioner.conformance.cluster.leaving import leave
from provisioner.conformance.cluster.steps import DELETE, MOVE, PODS, SNAPSHOT, STEPS, WRITE
from provisioner.conformance.cluster.survey import survey
from provisioner.conformance.ec2 import Ec2
from provisioner.conformance.journal import new_run
from provisioner.conformance.probe import Confirmed, NotRun, Refuted
from provisioner.conformance.sweep import Patience
from provisioner.kube.client import KubeClient
from provisioner.sandbox import installation
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.real_nodes import NEEDS_A_REAL_NODE
from tests.node.machine import why_no_ext_growth
from tests.sandbox import lab as strict

pytestmark = [NEEDS_A_REAL_NODE, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]
FILE_SYSTEM = "xfs" if why_no_ext_growth() else "ext4"
RUN_S = 240


@dataclass
class User:
    """Somebody at a terminal, who has a kubeconfig and AWS credentials."""

    box: Sandbox
    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def start(
        self, *options: str, kubeconfig: Path | None = None, context: str = "sandbox"
    ) -> subprocess.Popen[str]:
        plane = self.box.plane
        named = ["--kubeconfig", str(kubeconfig or plane.kubeconfig), "--context", context]
        account = ["--endpoint-url", self.box.ec2_endpoint, "--region", self.box.region]
        example = ["--image", POD_IMAGE, "--file-system", FILE_SYSTEM]
        command = [sys.executable, "-m", "provisioner.cli", "conformance", "aws", "--yes"]
        return subprocess.Popen(
            [*command, *account, *named, *example, "--state", str(self.state), *options],
            cwd=ROOT,
            env={
                **os.environ,
                **CREDENTIALS,
                "AWS_CONFIG_FILE": "/dev/null",
                "PYTHONUNBUFFERED": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    async def types(
        self, *options: str, kubeconfig: Path | None = None, context: str = "sandbox"
    ) -> tuple[int, str]:
        """The exit status, and what was printed."""
        process = self.start(*options, kubeconfig=kubeconfig, context=context)
        return await self.ended(process)

    async def ended(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        try:
            output, _ = await asyncio.to_thread(process.communicate, None, RUN_S)
        finally:
            process.kill()
            process.wait()
        return process.returncode, output

    async def reaches(self, process: subprocess.Popen[str], words: str) -> None:
        """Read what a process prints until a line has these words."""

        def read() -> str:
            assert process.stdout is not None
            seen = ""
            for line in process.stdout:
                seen += line
                if words in line:
                    return ""
            return seen

        assert await asyncio.wait_for(asyncio.to_thread(read), RUN_S) == ""

    async def has(self, *kinds: str) -> set[str]:
        """Everything of these kinds in the cluster, by kind, namespace, name and UID."""
        found = json.loads(
            await kubectl(self.box.plane, "get", ",".join(kinds), "--all-namespaces", "-o", "json")
        )
        return {
            "/".join((e["kind"], meta.get("namespace", ""), meta["name"], meta["uid"]))
            for e in found["items"]
            for meta in (e["metadata"],)
        }

    async def everything(self) -> set[str]:
        """What the steps may make, in all of the cluster and in EC2."""
        return await self.has(*KINDS) | set(await asyncio.to_thread(self._in_ec2))

    def _in_ec2(self) -> Iterator[str]:
        client = strict.client(self.box.ec2_endpoint)
        for volume in client.describe_volumes()["Volumes"]:
            yield f"{volume['VolumeId']} {volume['State']}"
        for snapshot in client.describe_snapshots(OwnerIds=["self"])["Snapshots"]:
            yield snapshot["SnapshotId"]

    async def applies(self, document: dict[str, Any]) -> None:
        await kubectl(self.box.plane, "apply", "-f", "-", text=json.dumps(document))


KINDS = (
    *("namespaces", "pods", "persistentvolumeclaims", "persistentvolumes", "storageclasses"),
    *("volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"),
)
STRANGERS = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strangers"}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "strangers"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(real: Background) -> AsyncIterator[Sandbox]:
    """A cluster in which our three programs run, and somebody else has a claim."""
    box = real.sandbox
    await real.call(box.install_controller())
    await real.call(box.elected(await real.call(box.start_controller())))
    await real.call(box.install_webhook())
    await real.call(box.start_webhook())
    await kubectl(box.plane, "apply", "-f", "-", text=json.dumps(STRANGERS))
    real_names = {node.name for node in box.real_nodes}
    pretended = {each.private_dns_name for each in box.instances} - real_names
    await kubectl(box.plane, "cordon", *pretended)  # on which no pod ever ends
    yield box
    box.crew.check()
    await installation.unregister_webhook(box.plane)


@pytest.fixture
def user(installed: Sandbox, tmp_path: Path) -> User:
    return User(installed, tmp_path)


async def test_the_worked_example_is_done_and_leaves_nothing(user: User):
    before = await user.everything()
    report = user.folder / "report.md"
    status, output = await user.types("--only", "cluster", "--report", str(report))

    assert status == 0, output
    document = json.loads((user.folder / "report.md.json").read_text())
    steps = {each["name"]: each for each in document["cluster"]["steps"]}
    assert list(steps) == [step.name for step in STEPS]
    assert {each["verdict"] for each in steps.values()} == {"confirmed"}, output
    assert all(each["seconds"] > 0 for each in steps.values())
    assert len(document["cluster"]["nodes"]) == 2
    text = report.read_text()
    for step in STEPS:
        assert f"| {step.name} | {step.sentence} | confirmed | " in text
    assert await user.everything() == before


async def killed_at(user: User, words: str, number: signal.Signals) -> str:
    """Run until a line has been printed, then send a signal; what was printed afterwards."""
    process = user.start("--only", "cluster")
    try:
        await user.reaches(process, words)
        process.send_signal(number)
        output, _ = await asyncio.to_thread(process.communicate, None, RUN_S)
    finally:
        process.kill()
        process.wait()
    return output


@pytest.mark.parametrize("words", ["Run ", "cluster-webhook", "cluster-pods", "cluster-grow"])
async def test_what_a_killed_run_has_left_is_swept(user: User, words: str):
    """With volumes that a pod has mounted, too."""
    before = await user.everything()
    await killed_at(user, words, signal.SIGKILL)

    status, output = await user.types("--sweep")

    assert status == 0, output
    assert "nothing is left" in output
    assert await user.everything() == before


async def test_a_killed_run_is_resumed_and_ends_as_one(user: User):
    before = await user.everything()
    await killed_at(user, "cluster-write", signal.SIGKILL)
    assert await user.everything() != before

    report = user.folder / "report.md"
    status, output = await user.types("--only", "cluster", "--resume", "--report", str(report))

    assert status == 0, output
    assert "steps in the cluster: 0 refuted, 8 confirmed, 0 not run" in report.read_text()
    assert await user.everything() == before
    status, output = await user.types("--only", "cluster", "--resume")
    assert status == 2
    assert "there is nothing to resume" in output


async def test_ctrl_c_deletes_everything_and_a_second_run_waits_for_the_first(user: User):
    before = await user.everything()
    process = user.start("--only", "cluster")
    try:
        await user.reaches(process, "cluster-write")
        process.send_signal(signal.SIGSTOP)  # or it ends before the others have looked
        status, output = await user.types("--only", "cluster")
        assert status == 2, output
        assert "is under way here: wait until it has ended" in output
        elsewhere = User(user.box, user.folder / "elsewhere")
        status, output = await elsewhere.types("--only", "cluster")
        assert status == 2, output
        assert "of another machine or without a journal here, has things" in output
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        output, _ = await asyncio.to_thread(process.communicate, None, RUN_S)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 2
    assert "everything that was made is being deleted" in output
    assert "The run ended early: it was interrupted." in output
    assert await user.everything() == before


async def test_a_namespace_that_only_looks_like_one_of_a_run_is_not_touched(user: User):
    run = "20261123t101500-0a1b2c"
    name = f"ebs-conformance-{run}"
    await user.applies({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        before = await user.everything()
        status, output = await user.types("--sweep", run)
        assert status == 0, output
        assert await user.everything() == before
    finally:
        await kubectl(user.box.plane, "delete", "namespace", name)


# -- steps that are not confirmed


@asynccontextmanager
async def an_example(user: User, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Example]:
    """The steps one by one, in a namespace of their own."""
    for name, value in {**CREDENTIALS, "AWS_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)

    async def heard(*_: object) -> None:
        """Nobody listens."""

    box, run = user.box, new_run(datetime.now(UTC))
    ec2 = Ec2.connect(region=box.region, endpoint=box.ec2_endpoint)
    async with await KubeClient.connect(
        kubeconfig=str(box.plane.kubeconfig), context="sandbox"
    ) as client:
        hand = Hand(client, run)
        seen = await survey(client, hand.namespace)
        example = Example(hand, seen, ec2, POD_IMAGE, FILE_SYSTEM, heard)
        try:
            await example._enter()
            yield example
        finally:
            left = await leave(hand, ec2, Patience(settles_s=1))
            await ec2.close()
        assert left.why == {}


async def test_a_step_is_confirmed_only_if_it_was_so(user: User, monkeypatch: pytest.MonkeyPatch):
    before = await user.everything()
    async with an_example(user, monkeypatch) as example:
        no_image = replace(example, image="nobody.invalid/nothing:1")
        pods, _ = await no_image._one(replace(PODS, within_s=20), no_image._pods)
        assert isinstance(pods, NotRun)
        assert "cannot be pulled" in pods.why
        for name in ("hello-here", "hello-there"):
            await example._gone(name)

        example._findings[PODS.name] = Confirmed("")
        written, _ = await example._one(WRITE, example._write)
        assert isinstance(written, Confirmed)
        example._findings[WRITE.name] = written

        late, _ = await example._one(replace(SNAPSHOT, within_s=0.01), example._snapshot)
        assert isinstance(late, Refuted)
        assert late.seen.startswith("it did not come to its end within 0 s")

        example._sum = "that of other bytes"
        moved, _ = await example._one(MOVE, example._move)
        assert isinstance(moved, Refuted)
        assert moved.seen.endswith(", not that of other bytes")

        elsewhere = Ec2.connect(region="eu-west-1", endpoint=user.box.ec2_endpoint)
        of_another = replace(example, ec2=elsewhere, _findings=example._findings)
        deleted, _ = await of_another._one(DELETE, of_another._delete)
        await elsewhere.close()
        assert isinstance(deleted, NotRun)
        assert deleted.why.startswith("EC2 in eu-west-1 shows no volume with the tag")
        assert isinstance((await example._one(DELETE, example._delete))[0], Confirmed)
    assert await user.everything() == before


# -- clusters in which the steps cannot be done; what the plan says


async def plan(user: User, **where: Any) -> tuple[int, str]:
    before = await user.everything()
    found = await user.types("--only", "cluster", "--plan", **where)
    assert await user.everything() == before
    return found


async def test_a_context_that_is_not_there_is_one_sentence(user: User):
    status, output = await plan(user, context="production")

    assert status == 2
    assert output.startswith("ebs-provisioner: the context production: ")
    assert len(output.splitlines()) == 1


async def test_rights_that_are_missing_are_named_before_anything_is_made(
    user: User, real: Background
):
    plane = user.box.plane
    token = await real.call(plane.service_account_token("strangers", "default"))
    kubeconfig = plane.kubeconfig_for(token, user.folder / "kubeconfig")
    status, output = await plan(user, kubeconfig=kubeconfig)

    assert status == 2
    assert "need more rights: create namespaces, create storageclasses" in output
    assert "get storageclasses" in output  # without it nothing could be deleted


async def test_with_one_node_the_move_is_not_run(user: User):
    node = user.box.real_nodes[1].name
    await kubectl(user.box.plane, "cordon", node)
    try:
        status, output = await plan(user)
    finally:
        await kubectl(user.box.plane, "uncordon", node)

    assert status == 0, output
    assert "Not done there: cluster-move: it needs two nodes in one zone" in output


async def test_nodes_that_take_no_pods_are_one_sentence(user: User):
    names = [node.name for node in user.box.real_nodes]
    await kubectl(user.box.plane, "cordon", *names)
    try:
        status, output = await plan(user)
    finally:
        await kubectl(user.box.plane, "uncordon", *names)

    assert status == 2
    assert "no node with the driver ebs.csi.aws.com takes pods" in output


async def test_without_our_controller_there_is_one_sentence(user: User, real: Background):
    """Its leases stay, and tell who holds them."""
    lease = ("lease", "external-attacher-leader-ebs-csi-aws-com", "--namespace=kube-system")
    await real.call(real.sandbox.stop_controller())
    stock = json.dumps({"spec": {"holderIdentity": "ebs-csi-controller-0"}})
    await kubectl(real.sandbox.plane, "patch", *lease, "--type=merge", "--patch", stock)
    try:
        status, output = await plan(user)
    finally:
        ours = json.dumps({"spec": {"holderIdentity": "ebs-provisioner_test"}})
        await kubectl(real.sandbox.plane, "patch", *lease, "--type=merge", "--patch", ours)

    assert status == 2
    assert "no controller of ours leads in this cluster" in output
    assert "is held by ebs-csi-controller-0" in output


async def test_without_the_kinds_of_snapshots_their_steps_are_not_run(user: User):
    plane = user.box.plane
    await kubectl(plane, "delete", "crd", "volumesnapshotclasses.snapshot.storage.k8s.io")
    output = ""
    async with asyncio.timeout(30):  # the API server drops a kind a moment later
        while "Not done there" not in output:
            _, output = await user.types("--only", "cluster", "--plan")

    assert "cluster-snapshot: this cluster does not serve VolumeSnapshots" in output
    assert "cluster-restore: this cluster does not serve VolumeSnapshots" in output


async def test_without_the_driver_there_is_one_sentence(user: User):
    """The last test of this file: the node plugins stay unregistered."""
    await kubectl(user.box.plane, "delete", "csinodes", "--all")
    status, output = await user.types("--only", "cluster", "--plan")

    assert status == 2
    assert "no node of this cluster has the driver ebs.csi.aws.com (by its CSINode)" in output
