"""The manifests, without a cluster: what they grant is what the code calls, and no more."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry

from provisioner import __file__ as package_file
from provisioner import process
from provisioner.classes import storage_class_rules
from provisioner.cli import controller
from provisioner.controller import app
from provisioner.controller.nodes import initialize, startup_taint_rules
from provisioner.controller.nodes import initialize_rules as rules
from provisioner.controller.shared.settings import Settings
from provisioner.ec2 import botocore_client
from provisioner.kube import lease
from provisioner.model import leadership
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.names import ATTACHMENT_LIMIT, OUT_OF_SERVICE_FOR
from provisioner.model.taint import OUT_OF_SERVICE, Taint, Toleration, keeps_away
from tests.calls_in_code import kubernetes_rights
from tests.documents import page
from webhook.serving.server import Limits

PACKAGE = Path(package_file).parent
MANIFESTS = PACKAGE.parent / "manifests"
PREFIX = "EBS_PROVISIONER_CONTROLLER_"
OUR_LEASES = "ebs-provisioner-controller-leases"
CLOUD_CONTROLLERS = "ebs-provisioner-controller-cloud-controllers"

KUSTOMIZATION: dict[str, Any] = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())


DEAD_NODES: dict[str, Any] = yaml.safe_load(
    (MANIFESTS / "release-dead-nodes" / "kustomization.yaml").read_text()
)


def dead_nodes(kind: str) -> dict[str, Any]:
    """What the component for ``--release-dead-nodes`` adds."""
    (only,) = (
        each
        for name in DEAD_NODES["resources"]
        for each in yaml.safe_load_all((MANIFESTS / "release-dead-nodes" / name).read_text())
        if each["kind"] == kind
    )
    return dict(only)


def objects(kind: str) -> Iterator[dict[str, Any]]:
    for name in KUSTOMIZATION["resources"]:
        for each in yaml.safe_load_all((MANIFESTS / name).read_text()):
            if each["kind"] == kind:
                yield each


def the(kind: str, name: str = "") -> dict[str, Any]:
    (only,) = (each for each in objects(kind) if name in {"", each["metadata"]["name"]})
    return only


def pod() -> dict[str, Any]:
    template: dict[str, Any] = the("Deployment")["spec"]["template"]
    return template


def container() -> dict[str, Any]:
    (only,) = pod()["spec"]["containers"]
    return dict(only)


def granted(kind: str) -> set[tuple[str, str, str]]:
    return {right for role in objects(kind) for right in granted_by(role)}


def granted_by(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_every_file_is_applied():
    files = {path.name for path in MANIFESTS.glob("*.yaml")}

    assert files - {"kustomization.yaml"} == set(KUSTOMIZATION["resources"])


def test_the_rights_are_exactly_those_that_the_code_uses():
    moves = yaml.safe_load_all((MANIFESTS / "volume-moves" / "rbac.yaml").read_text())
    on_demand = granted_by(dead_nodes("ClusterRole")) | granted_by(next(moves))

    assert granted("ClusterRole") | granted("Role") | on_demand == kubernetes_rights(PACKAGE)


def test_what_dead_nodes_need_is_granted_with_the_option_only():
    (generator,) = DEAD_NODES["configMapGenerator"]
    (base,) = KUSTOMIZATION["configMapGenerator"]
    attachments = ("storage.k8s.io", "volumeattachments", "delete")

    assert (generator["name"], generator["behavior"]) == (base["name"], "merge")
    assert generator["literals"] == [f"{PREFIX}RELEASE_DEAD_NODES=true"]
    assert attachments in granted_by(dead_nodes("ClusterRole")) - granted("ClusterRole")
    assert dead_nodes("ClusterRoleBinding")["subjects"] == the("ClusterRoleBinding")["subjects"]
    role = dead_nodes("ClusterRole")["metadata"]["name"]
    assert dead_nodes("ClusterRoleBinding")["roleRef"]["name"] == role
    assert Settings().release_dead_nodes is False


def test_the_rights_to_leases_are_the_only_ones_in_their_namespace():
    assert {resource for _, resource, _ in granted("Role")} == {"leases"}


def test_the_rights_name_files_that_exist():
    named = re.findall(r"[\w/]+\.py", (MANIFESTS / "rbac.yaml").read_text())

    assert len(named) > 10
    assert [name for name in named if not (PACKAGE / name).exists() and "test" not in name] == []


def test_the_leases_are_those_that_the_controller_takes():
    named = [rule.get("resourceNames") for rule in the("Role", OUR_LEASES)["rules"]]

    assert named == [list(leadership.lease_names(EBS_DRIVER)), None]
    for kind in ("Role", "RoleBinding"):
        assert the(kind, OUR_LEASES)["metadata"]["namespace"] == Settings().lease_namespace


def test_the_leases_of_cloud_controllers_are_looked_at_where_they_are_wherever_ours_are():
    """In a Role of its own: the one of our leases goes where --leader-election-namespace says."""
    [rule] = the("Role", CLOUD_CONTROLLERS)["rules"]

    assert (rule["resourceNames"], rule["verbs"]) == (list(initialize.LEASES), ["get"])
    for kind in ("Role", "RoleBinding"):
        found = the(kind, CLOUD_CONTROLLERS)["metadata"]
        assert found["namespace"] == initialize.NAMESPACE


def test_each_role_is_bound_once():
    for kind in ("ClusterRole", "Role"):
        names = sorted(each["metadata"]["name"] for each in objects(kind))
        assert sorted(each["roleRef"]["name"] for each in objects(f"{kind}Binding")) == names


@pytest.mark.parametrize(
    ("kind", "name"), [("ClusterRole", ""), ("Role", OUR_LEASES), ("Role", CLOUD_CONTROLLERS)]
)
def test_the_rights_belong_to_the_account_of_the_deployment(kind: str, name: str):
    binding, account = the(f"{kind}Binding", name), the("ServiceAccount")["metadata"]

    assert binding["roleRef"]["kind"] == kind
    assert binding["roleRef"]["name"] == the(kind, name)["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert pod()["spec"]["serviceAccountName"] == account["name"]
    assert the("Deployment")["metadata"]["namespace"] == account["namespace"]


def test_the_pod_meets_the_restricted_standard_with_a_read_only_root():
    own, all_containers = container()["securityContext"], pod()["spec"]["securityContext"]

    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert all_containers["runAsNonRoot"] is True
    assert all_containers["runAsUser"] > 0
    assert all_containers["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_selectors_find_the_pod():
    labels = pod()["metadata"]["labels"]
    spread = pod()["spec"]["topologySpreadConstraints"]
    selectors = [each["labelSelector"] for each in spread]
    selectors += [
        the("Deployment")["spec"]["selector"],
        the("PodDisruptionBudget")["spec"]["selector"],
    ]

    assert [each["matchLabels"] for each in selectors] == [labels] * 4
    assert {each["topologyKey"] for each in spread} == {
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    }


@pytest.mark.parametrize("path", ["deployment.yaml", "webhook/deployment.yaml"])
def test_replicas_that_are_not_ready_do_not_keep_their_nodes_from_being_drained(path: str):
    """None is without access to AWS: the drain may be what would give them a node that has it."""
    (budget,) = [
        each
        for each in yaml.safe_load_all((MANIFESTS / path).read_text())
        if each["kind"] == "PodDisruptionBudget"
    ]

    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_the_command_line_takes_the_arguments():
    command, *arguments = container()["args"]

    context = controller.make_context(command, arguments)

    assert context.params["leader_elect"] is True
    assert context.params["metrics_address"] == ":8080"


def test_the_environment_names_are_those_of_options():
    options = {f"{PREFIX}{option.name.upper()}" for option in controller.params if option.name}
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    literals = [literal.partition("=")[0] for literal in generator["literals"]]
    documented = re.findall(rf"{PREFIX}\w+(?==)", (MANIFESTS / "kustomization.yaml").read_text())

    assert set(literals) | set(documented) <= options
    assert container()["envFrom"] == [{"configMapRef": {"name": generator["name"]}}]


def test_an_empty_cluster_id_in_the_environment_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(f"{PREFIX}CLUSTER_ID", "")

    context = controller.make_context("controller", [], auto_envvar_prefix=PREFIX.rstrip("_"))

    assert context.params["cluster_id"] == ""


async def test_the_probes_are_served():
    ours = container()
    paths = [ours[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]

    async with (
        process.serve(
            "127.0.0.1:0", registry=CollectorRegistry(), healthy=lambda: "", ready=lambda: ""
        ) as port,
        aiohttp.ClientSession() as session,
    ):
        for path in (*paths, "/metrics"):
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                assert answer.status == 200, path


def test_the_end_waits_for_calls_longer_than_ec2_may_be_silent_about_one():
    silent_s = botocore_client.CONNECT_TIMEOUT_S + botocore_client.READ_TIMEOUT_S

    assert Settings().drain_s > silent_s


def test_the_grace_period_is_longer_than_the_controller_takes_to_end():
    takes_s = Settings().drain_s + app._UNTAG_S + app._FLUSH_S + lease._RELEASE_S

    assert pod()["spec"]["terminationGracePeriodSeconds"] >= takes_s + 10


def test_the_image_is_the_one_that_the_kustomization_tags():
    (image,) = KUSTOMIZATION["images"]

    assert container()["image"] == image["name"]


def test_the_classes_are_ours_and_valid():
    classes = {each["metadata"]["name"]: each for each in objects("StorageClass")}

    assert {name: each["reclaimPolicy"] for name, each in classes.items()} == {
        "ebs-gp3": "Delete",
        "ebs-gp3-retain": "Retain",
    }
    for each in classes.values():
        assert each["provisioner"] == EBS_DRIVER
        assert each["volumeBindingMode"] == "WaitForFirstConsumer"
        assert storage_class_rules.parse_parameters(each["parameters"]).volume_type == "gp3"


def test_the_driver_is_declared_as_the_stock_chart_does():
    declared = the("CSIDriver")

    assert declared["metadata"]["name"] == EBS_DRIVER
    assert declared["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "fsGroupPolicy": "File",
    }


# -- where its pods may come to

WORKLOADS = pytest.mark.parametrize("path", ["deployment.yaml", "webhook/deployment.yaml"])
LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
EFFECTS = ("NoSchedule", "NoExecute")


def tolerated(path: str) -> list[dict[str, Any]]:
    [workload] = [
        each
        for each in yaml.safe_load_all((MANIFESTS / path).read_text())
        if each["kind"] == "Deployment"
    ]
    found: list[dict[str, Any]] = workload["spec"]["template"]["spec"]["tolerations"]
    return found


def keeps_pods_away(key: str, tolerations: list[dict[str, Any]]) -> list[str]:
    """The effects with which a taint keeps pods with these tolerations away."""
    read = msgspec.convert(tolerations, list[Toleration])
    return [effect for effect in EFFECTS if keeps_away([Taint(key=key, effect=effect)], read)]


@WORKLOADS
def test_only_nodes_that_were_lost_are_tolerated_for_a_time(path: str):
    # Without a key it would tolerate every taint, and be scheduled to a node tainted for good.
    assert all(each.get("key") for each in tolerated(path))
    assert {
        each["key"]: each["tolerationSeconds"] for each in tolerated(path) if "effect" in each
    } == (dict.fromkeys(LOST, 60))


@WORKLOADS
def test_they_come_up_on_nodes_that_wait_for_the_node_plugin(path: str):
    """The controller takes this taint off: where all nodes have it, no other pod would ever run."""
    assert keeps_pods_away(startup_taint_rules.taint_key(EBS_DRIVER), tolerated(path)) == []
    assert keeps_pods_away("example.com/other", tolerated(path)) == list(EFFECTS)
    assert keeps_pods_away(rules.TAINT, tolerated(path)) == list(EFFECTS)


@WORKLOADS
def test_where_ours_initializes_nodes_they_come_up_on_those_that_are_not(path: str):
    folder = MANIFESTS / "initialize-nodes"
    component = yaml.safe_load((folder / "kustomization.yaml").read_text())
    (base,) = KUSTOMIZATION["configMapGenerator"]
    (generator,), (patch,) = component["configMapGenerator"], component["patches"]
    added = yaml.safe_load((folder / patch["path"]).read_text())

    assert (generator["name"], generator["behavior"]) == (base["name"], "merge")
    assert generator["literals"] == [f"{PREFIX}INITIALIZE_NODES=true"]
    assert [each["path"] for each in added] == ["/spec/template/spec/tolerations/-"]
    with_it = [*tolerated(path), *(each["value"] for each in added)]
    assert keeps_pods_away(rules.TAINT, with_it) == []
    assert keeps_pods_away("example.com/other", with_it) == list(EFFECTS)


def test_the_account_is_held_to_what_the_code_writes_on_nodes():
    held = the("ValidatingAdmissionPolicy", "ebs-provisioner-controller-on-nodes")
    variables = held["spec"]["variables"]
    keys = {each["name"]: set(json.loads(each["expression"])) for each in variables}

    assert keys == {
        "taints": {startup_taint_rules.taint_key(EBS_DRIVER), rules.TAINT, OUT_OF_SERVICE.key},
        "labels": set(rules.LABELS),
        "annotations": {ATTACHMENT_LIMIT, OUT_OF_SERVICE_FOR},
    }


def test_the_account_is_held_to_the_default_driver_in_persistent_volumes():
    held = the("ValidatingAdmissionPolicy", "ebs-provisioner-controller-on-volumes")
    (drivers,) = [each for each in held["spec"]["variables"] if each["name"] == "drivers"]

    assert json.loads(drivers["expression"]) == [EBS_DRIVER]


def test_each_policy_is_about_the_account_is_bound_and_denies():
    bindings = {
        each["spec"]["policyName"]: each for each in objects("ValidatingAdmissionPolicyBinding")
    }
    account = "system:serviceaccount:ebs-provisioner:ebs-provisioner-controller"

    policies = objects("ValidatingAdmissionPolicy")
    assert bindings.keys() == {each["metadata"]["name"] for each in policies}
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"] == f'request.userInfo.username == "{account}"'
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert bindings[policy["metadata"]["name"]]["spec"]["validationActions"] == ["Deny"]


def test_what_webhooks_add_to_a_pod_that_copies_is_forbidden_so_that_a_plan_tells_it():
    text = (MANIFESTS / "volume-moves" / "policy.yaml").read_text()
    (policy,) = [
        each
        for each in yaml.safe_load_all(text)
        if each["metadata"]["name"] == "ebs-provisioner-controller-on-copies"
        and each["kind"] == "ValidatingAdmissionPolicy"
    ]

    # Without it, the API server answers Invalid, which Copier.why_not does not take for an answer.
    assert {each["reason"] for each in policy["spec"]["validations"]} == {"Forbidden"}


def test_the_limits_of_memory_fit_the_volumes_that_they_are_said_to_fit():
    guide = (MANIFESTS.parent / "docs" / "install.md").read_text()
    said = re.findall(r"\*\*(\d+) MiB and ([\d.]+) MiB for each 1,000", guide)
    cells = r"\| (\d+)Mi(?: \((the default).*?\))? " * 4
    rows = re.findall(rf"^\| ([\d,]+) {cells}\|$", guide, re.MULTILINE)
    values = yaml.safe_load((MANIFESTS / "chart" / "values.yaml").read_text())
    webhook = yaml.safe_load_all((MANIFESTS / "webhook" / "deployment.yaml").read_text())
    (deployment,) = (each for each in webhook if each["kind"] == "Deployment")
    (of_webhook,) = deployment["spec"]["template"]["spec"]["containers"]
    programs = {"controller": container()["resources"], "webhook": of_webhook["resources"]}

    assert len(rows) >= 3
    for column, (program, resources) in enumerate(programs.items()):
        fixed, each_1000 = map(float, said[column])
        for volumes, *amounts in rows:
            needed = fixed + each_1000 * int(volumes.replace(",", "")) / 1000
            assert needed <= int(amounts[4 * column + 2]) <= 1.1 * needed
        (default,) = (row for row in rows if row[4])
        assert (resources["requests"]["memory"], resources["limits"]["memory"]) == (
            f"{default[4 * column + 1]}Mi",
            f"{default[4 * column + 3]}Mi",
        )
        assert values[program]["resources"] == resources


def test_the_room_for_work_takes_as_many_claims_and_deletions_as_is_said():
    guide, scale = page("install"), page("design/scale")
    (room, claims, deletions, of_claim, of_deletion), *_ = re.findall(
        r"^(\d+) MiB are enough for some ([\d,]+) claims .* for ([\d,]+) volumes .* "
        r"\((\d+) and (\d+) KiB each",
        guide,
        re.MULTILINE,
    )
    (taken_mib, highest, at_rest, each_kib), *_ = re.findall(
        r"its limit is for, (\d+) MiB \(\[(\d+) and (\d+)\].*?\): (\d+) KiB a claim", scale
    )
    waiting = re.findall(r"([\d,]+) volumes that waited .* took (\d+) MiB, (\d+) KiB", scale)
    ((volumes, volumes_mib, volume_kib),) = waiting
    leader = f"| controller that leads | {at_rest} |"

    assert f"{room} MiB for work" in guide
    assert f"{room} MiB for work" in scale
    assert any(
        row.startswith(leader) and f"| {highest} |" in row
        for row in page("design/performance").splitlines()
    )
    assert int(highest) - int(at_rest) == int(taken_mib)
    assert of_claim == each_kib == f"{int(taken_mib) * 1024 / 1000:.0f}"
    assert of_deletion == volume_kib
    assert float(volumes_mib) * 1024 / number(volumes) <= int(volume_kib)
    for many, kib in ((claims, of_claim), (deletions, of_deletion)):
        assert 0.9 * int(room) <= number(many) * int(kib) / 1024 <= int(room)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_limit_of_the_webhook_is_the_sum_of_what_it_was_measured_to_take():
    guide = (MANIFESTS.parent / "docs" / "install.md").read_text()
    (whole, each_1000), *_ = re.findall(r"fit \*\*(\d+) MiB and ([\d.]+) MiB for each 1,000", guide)
    (rest, slope, measured), *_ = re.findall(
        r"at most (\d+) MiB and ([\d.]+) MiB for each 1,000 .*?\((.*?)\)", guide
    )
    (bodies, connections, number), *_ = re.findall(
        r"(\d+) MiB are for the largest bodies .* (\d+) MiB for (\d+) connections", guide
    )

    assert slope == each_1000
    assert int(rest) + int(bodies) + int(connections) == int(whole)
    assert int(number) == Limits().connections
    for taken, volumes in re.findall(r"(\d+) (?:measured )?at ([\d,]+)", measured):
        needed = int(rest) + float(slope) * int(volumes.replace(",", "")) / 1000
        assert int(taken) <= needed <= 1.1 * int(taken)
