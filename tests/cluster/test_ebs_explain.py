"""``kubectl ebs explain``, as somebody with few rights or without AWS runs it.

What it says of broken clusters is held by test_broken_clusters.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.place import Place, a_place

pytestmark = pytest.mark.asyncio(loop_scope="module")

NO_KEYS = {
    "AWS_ACCESS_KEY_ID": "",
    "AWS_SECRET_ACCESS_KEY": "",
    "AWS_EC2_METADATA_DISABLED": "true",
}


async def explain(
    cluster: Cluster,
    *arguments: str,
    kubeconfig: Path | None = None,
    keys: Mapping[str, str] | None = None,
) -> tuple[int | None, str, str]:
    """Exit code, what is printed, what is complained of."""
    config = kubeconfig or cluster.sandbox.plane.kubeconfig
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "ebs", "explain", *arguments),
        *("--kubeconfig", str(config)),
        env={**os.environ, **cluster.sandbox.aws_environment, **(keys or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_healthy_claim_is_one_line_and_without_aws_it_says_what_is_missing(
    cluster: Cluster,
):
    async with a_place(cluster) as place:
        pv = await place.a_volume()
        volume_id = pv["spec"]["csi"]["volumeHandle"]
        target = ("pvc", f"{place.name}/data")
        healthy, without_aws = await asyncio.gather(
            explain(cluster, *target), explain(cluster, *target, keys=NO_KEYS)
        )

    assert healthy[0] == 0, healthy
    assert healthy[1].startswith(f"nothing is wrong with pvc {place.name}/data")
    assert volume_id in " ".join(healthy[1].split())
    assert healthy[2] == ""
    assert without_aws[0] == 1, without_aws
    assert without_aws[1].startswith("nothing found that is wrong with")
    assert "EC2 was not asked" in " ".join(without_aws[1].split())
    assert "DescribeVolumes" in without_aws[2]
    assert "no usable AWS credentials" in without_aws[2]


async def test_without_rights_it_says_which_and_concludes_nothing(cluster: Cluster, tmp_path: Path):
    async with a_place(cluster) as place:
        await place.claim(f"{place.name}-nowhere")
        config = await _who_reads_claims(place, tmp_path)
        code, out, err = await explain(
            cluster, "pvc", f"{place.name}/data", kubeconfig=config, keys=NO_KEYS
        )
        hidden = await explain(
            cluster, "pod", f"{place.name}/data", kubeconfig=config, keys=NO_KEYS
        )

    assert "ClassNotFound" not in out
    assert f"pvc {place.name}/data" in out
    assert "could not read get storageclasses" in err
    assert "could not read get leases" in err
    assert code in {0, 1}
    assert hidden[:2] == (1, "")
    assert "pods" in hidden[2]
    assert hidden[2].count("\n") == 1


async def _who_reads_claims(place: Place, folder: Path) -> Path:
    """A kubeconfig of somebody who may read claims of one namespace, and nothing else."""
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.name}"
    rules = [{"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]}]
    named = {"metadata": {"name": "reader"}}
    await place.api.create(f"{roles}/roles", {**named, "rules": rules})
    group = "rbac.authorization.k8s.io"
    binding = {
        **named,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "namespace": place.name, "name": "default"}],
    }
    await place.api.create(f"{roles}/rolebindings", binding)
    plane = place.cluster.sandbox.plane
    asked = plane.service_account_token(place.name, "default")
    token = await place.cluster.background.call(asked)
    return plane.kubeconfig_for(token, folder / "reader")


async def test_an_object_that_is_not_there_is_said_to_be_missing(cluster: Cluster):
    code, out, err = await explain(cluster, "pod", "default/nowhere")

    assert (code, err) == (1, "")
    assert out.startswith("pod default/nowhere does not work: ObjectMissing")
