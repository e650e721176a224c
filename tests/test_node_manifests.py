"""The node plugin's manifests, without a cluster: they agree with the code and with each other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
import yaml
from prometheus_client import CollectorRegistry

from provisioner import process
from provisioner.model.driver import EBS_DRIVER
from provisioner.node.commands import drain, node
from provisioner.node.instance import kube
from provisioner.node.settings import KUBELET_DIR, NodeSettings

if TYPE_CHECKING:
    from provisioner.node.instance.kube import ApiServer

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "manifests"
FOLDER = MANIFESTS / "node"
PATCHES = ("node-host-network", "driver-allocatable", "driver-selinux-mount")
COMPONENTS = (*PATCHES, "node-kubelet-root")
KUBELET = str(KUBELET_DIR)
PREFIX = "EBS_PROVISIONER_NODE_"
SELECTOR = {"app.kubernetes.io/name": "ebs-provisioner", "app.kubernetes.io/component": "node"}

Json = dict[str, Any]

KUSTOMIZATION: Json = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())


def objects(kind: str) -> Iterator[Json]:
    for name in KUSTOMIZATION["resources"]:
        for each in yaml.safe_load_all((FOLDER / name).read_text()):
            if each["kind"] == kind:
                yield each


def the(kind: str) -> Json:
    (only,) = objects(kind)
    return only


def pod() -> Json:
    template: Json = the("DaemonSet")["spec"]["template"]
    return template


def container() -> Json:
    (only,) = pod()["spec"]["containers"]
    return dict(only)


@pytest.mark.parametrize("folder", ["node", *COMPONENTS])
def test_every_file_says_what_it_is_for_and_is_applied(folder: str):
    files = {path.name: path.read_text() for path in (MANIFESTS / folder).iterdir()}
    kustomization = yaml.safe_load(files.pop("kustomization.yaml"))
    applied = [*kustomization.get("resources", ())]
    applied += [patch["path"] for patch in kustomization.get("patches", ())]

    assert all(text.startswith("# ") for text in files.values())
    assert set(files) == set(applied)


# -- rights


def granted() -> set[tuple[str, str]]:
    return {
        (resource, verb)
        for rule in the("ClusterRole")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked_for() -> Iterator[tuple[str, str]]:
    """Each request that the node's client can send: what it attempts says verb and kind."""
    for call in ast.walk(ast.parse(Path(str(kube.__file__)).read_text())):
        match call:
            case ast.Call(
                func=ast.Name(id="Attempt"),
                args=[
                    ast.Constant(value=str(verb)),
                    ast.Constant(value=str(target))
                    | ast.JoinedStr(values=[ast.Constant(value=str(target)), *_]),
                ],
            ):
                yield target.split()[0], verb


def test_the_rights_are_exactly_those_that_the_code_uses():
    assert granted() == set(asked_for())
    assert list(objects("Role")) == []


def test_nothing_can_be_written_and_no_secret_be_read():
    assert {verb for _, verb in granted()} <= {"get"}
    assert {resource for resource, _ in granted()} == {
        *("nodes", "persistentvolumes", "volumeattachments")
    }


def test_the_rights_name_files_that_exist():
    named = re.findall(r"[\w/]+\.py", (FOLDER / "rbac.yaml").read_text())

    assert len(named) > 4
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "provisioner" / name).exists(), name


def test_the_rights_are_those_of_the_account_of_the_pods():
    account, binding = the("ServiceAccount")["metadata"], the("ClusterRoleBinding")

    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert binding["roleRef"]["name"] == the("ClusterRole")["metadata"]["name"]
    assert pod()["spec"]["serviceAccountName"] == account["name"]
    assert the("DaemonSet")["metadata"]["namespace"] == account["namespace"]


def test_privileged_pods_have_a_namespace_of_their_own():
    restricted = yaml.safe_load((MANIFESTS / "namespace.yaml").read_text())["metadata"]
    own = the("Namespace")["metadata"]

    assert own["name"] != restricted["name"]
    assert own["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert restricted["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


# -- the pods


def test_it_is_privileged_for_the_propagation_of_mounts_and_has_nothing_else_of_its_host():
    spec = pod()["spec"]
    volumes = {each["name"]: each.get("hostPath", {}).get("path") for each in spec["volumes"]}
    mounts = {each["mountPath"]: each for each in container()["volumeMounts"]}

    assert container()["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert mounts[KUBELET]["mountPropagation"] == "Bidirectional"
    assert {path for path in volumes.values() if path} == {KUBELET, "/dev"}
    assert all(volumes[each["name"]] in (None, path) for path, each in mounts.items())
    assert not spec.keys() & {"hostPID", "hostIPC", "hostNetwork"}


def test_it_is_root_whatever_the_image_says():
    assert pod()["spec"]["securityContext"] == {
        "runAsNonRoot": False,
        "runAsUser": 0,
        "runAsGroup": 0,
    }


def test_the_selectors_find_the_pods():
    assert pod()["metadata"]["labels"] == SELECTOR
    assert the("DaemonSet")["spec"]["selector"]["matchLabels"] == SELECTOR


def test_it_runs_wherever_pods_do_and_is_evicted_last():
    assert pod()["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert pod()["spec"]["priorityClassName"] == "system-node-critical"


def test_two_of_them_never_share_a_node():
    update = the("DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"]

    assert update == {"maxUnavailable": "10%", "maxSurge": 0}


def test_no_limit_kills_a_repair_halfway():
    assert container()["resources"].keys() == {"requests"}


def test_the_image_is_that_of_the_controller():
    controller = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())

    assert KUSTOMIZATION["images"] == controller["images"]
    assert container()["image"] == KUSTOMIZATION["images"][0]["name"]


def test_the_options_come_from_the_configuration_and_a_change_of_it_rolls_the_pods():
    (generator,) = KUSTOMIZATION["configMapGenerator"]

    assert container()["envFrom"] == [{"configMapRef": {"name": generator["name"]}}]
    assert generator["namespace"] == the("DaemonSet")["metadata"]["namespace"]


def test_the_command_line_takes_the_arguments():
    command, *arguments = container()["args"]

    assert command == node.name
    context = node.make_context(command, ["--node-name=node-1", *arguments])
    assert context.params["metrics_address"] == ":9810"
    assert context.params["kubelet_dir"] == KUBELET_DIR
    [port] = container()["ports"]
    assert (port["name"], port["containerPort"]) == ("metrics", 9810)


def test_the_environment_names_are_those_of_options():
    options = {f"{PREFIX}{option.name.upper()}" for option in node.params if option.name}
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    literals = {literal.partition("=")[0] for literal in generator["literals"]}
    documented = set(re.findall(rf"{PREFIX}\w+(?==)", (FOLDER / "kustomization.yaml").read_text()))
    own = {each["name"]: each for each in container()["env"] if each["name"].startswith("EBS_")}

    assert {*literals, *documented, *own} <= options
    assert own[f"{PREFIX}NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_its_sockets_are_in_the_folder_that_it_shares_with_the_kubelet():
    settings = NodeSettings("node-1", cast("ApiServer", None))

    for socket in (settings.csi_socket, settings.registration_socket):
        assert socket.is_relative_to(KUBELET)


def test_the_drain_hook_has_its_time_and_the_programs_that_run_theirs():
    program, group, name, *arguments = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert (program, group, name) == ("ebs-provisioner", node.name, drain.name)

    context = drain.make_context(name, list(arguments))
    takes_s = context.params["timeout"] + NodeSettings("", cast("ApiServer", None)).drain_s

    # What is left is for what ends a process that has nothing to do.
    assert pod()["spec"]["terminationGracePeriodSeconds"] >= takes_s + 5


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


# -- components


@pytest.mark.parametrize("folder", PATCHES)
def test_components_change_what_is_there(folder: str):
    kustomization = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())
    patched = [
        yaml.safe_load((MANIFESTS / folder / patch["path"]).read_text())
        for patch in kustomization["patches"]
    ]
    there = {("CSIDriver", EBS_DRIVER), ("DaemonSet", the("DaemonSet")["metadata"]["name"])}

    assert kustomization["kind"] == "Component"
    assert {(each["kind"], each["metadata"]["name"]) for each in patched} <= there


def test_another_folder_of_the_kubelet_is_named_once():
    component = yaml.safe_load((MANIFESTS / "node-kubelet-root/kustomization.yaml").read_text())
    (generator,), (replacement,) = component["configMapGenerator"], component["replacements"]
    (own,) = KUSTOMIZATION["configMapGenerator"]
    option, _, folder = generator["literals"][0].partition("=")

    assert (generator["name"], generator["behavior"]) == (own["name"], "merge")
    assert replacement["source"]["fieldPath"] == f"data.{option}"
    context = node.make_context(node.name, ["--node-name=node-1", f"--kubelet-dir={folder}"])
    assert option == f"{PREFIX}KUBELET_DIR"
    assert context.params["kubelet_dir"] == Path(folder)


def test_the_limit_is_asked_for_no_more_often_than_the_api_server_allows():
    patch = yaml.safe_load((MANIFESTS / "driver-allocatable/csi-driver.yaml").read_text())

    # Source: Kubernetes 1.36 API reference, CSIDriver nodeAllocatableUpdatePeriodSeconds.
    assert patch["spec"]["nodeAllocatableUpdatePeriodSeconds"] >= 10
