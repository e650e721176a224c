"""The webhook's manifests, without a cluster: they agree with the code and with each other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.kube import lease
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.node_affinity import labels_in
from provisioner.sandbox import installation
from tests.documents import page
from tests.json_patch import applied
from webhook import app
from webhook import settings as names
from webhook.cli import serve
from webhook.model.review import SUBJECTS
from webhook.settings import Settings

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "manifests"
FOLDER = MANIFESTS / "webhook"
MOVES = MANIFESTS / "webhook-volume-moves"
OTHERS = ("webhook-zone-guard", "webhook-caller-token", "webhook-host-network", MOVES.name)
ZONE_AND_REGION_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.ebs.csi.aws.com/zone",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
PREFIX = "EBS_WEBHOOK_SERVE_"

KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
SELECTOR = {"app.kubernetes.io/name": "ebs-provisioner", "app.kubernetes.io/component": "webhook"}

Json = dict[str, Any]


def objects(kind: str, *files: Path) -> Iterator[Json]:
    for path in files or [FOLDER / name for name in KUSTOMIZATION["resources"]]:
        for each in yaml.safe_load_all(path.read_text()):
            if each["kind"] == kind:
                yield each


def the(kind: str, name: str = "") -> Json:
    (only,) = [each for each in objects(kind) if not name or each["metadata"]["name"] == name]
    return only


def pod() -> Json:
    template: Json = the("Deployment")["spec"]["template"]
    return template


def container() -> Json:
    (only,) = pod()["spec"]["containers"]
    return dict(only)


def rules() -> list[Json]:
    return [
        rule for kind in ("ClusterRole", "Role") for each in objects(kind) for rule in each["rules"]
    ]


def hooks(kind: str = "Validating") -> list[Json]:
    found: list[Json] = the(f"{kind}WebhookConfiguration")["webhooks"]
    return found


def all_hooks() -> list[Json]:
    (added,) = objects("MutatingWebhookConfiguration", MOVES / "pods.yaml")
    assert added["metadata"] == {"name": names.NAME}
    return [*hooks("Mutating"), *hooks(), *added["webhooks"]]


@pytest.mark.parametrize("folder", ["webhook", *OTHERS])
def test_every_file_says_what_it_is_for_and_is_applied(folder: str):
    files = {path.name: path.read_text() for path in (MANIFESTS / folder).iterdir()}
    kustomization = yaml.safe_load(files.pop("kustomization.yaml"))
    applied = [*kustomization.get("resources", ())]
    applied += [patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch]

    assert all(text.startswith("# ") for text in files.values())
    assert set(files) == {name for name in applied if "/" not in name}


# -- rights


def test_nothing_can_be_created_but_events_and_leases_and_nothing_deleted():
    reached = {
        (resource, verb)
        for rule in rules()
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert {each for each in reached if each[1] in {"create", "delete", "deletecollection"}} == {
        ("events", "create"),
        ("leases", "create"),
    }
    created_in = [
        each["metadata"]["namespace"]
        for each in objects("Role")
        for rule in each["rules"]
        if "leases" in rule["resources"]
    ]
    assert created_in == [names.NAMESPACE] * 2
    assert "*" not in str(rules())


def test_what_is_sensitive_is_granted_by_name_only():
    by_name = {
        resource: (rule["resourceNames"], rule["verbs"])
        for rule in rules()
        for resource in rule["resources"]
        if "resourceNames" in rule
    }

    assert {resource: granted for resource, (granted, _) in by_name.items()} == {
        "secrets": [names.TLS_SECRET],
        "leases": [names.LEASE],
        "mutatingwebhookconfigurations": [names.NAME],
        "validatingwebhookconfigurations": [names.NAME],
    }
    for rule in rules():
        if "resourceNames" not in rule and rule["verbs"] != ["create"]:
            assert not set(rule["resources"]) & by_name.keys()


def test_only_persistent_volumes_are_written_to_in_the_whole_cluster():
    written = {
        resource
        for rule in the("ClusterRole")["rules"]
        for resource in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"} and "resourceNames" not in rule
    }

    assert written == {"persistentvolumes"}


def test_the_rights_name_files_that_exist():
    named = re.findall(r"[\w/]+\.py", (FOLDER / "rbac.yaml").read_text())

    assert len(named) > 8
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "provisioner" / name).exists(), name


def test_every_role_is_bound_to_the_account_of_the_deployment():
    account = the("ServiceAccount")["metadata"]
    bound = {}
    for kind in ("ClusterRole", "Role"):
        for binding in objects(f"{kind}Binding"):
            assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
            assert binding["roleRef"]["kind"] == kind
            bound[kind, binding["roleRef"]["name"], binding["metadata"].get("namespace")] = 1

    granted = {
        (kind, role["metadata"]["name"], role["metadata"].get("namespace")): 1
        for kind in ("ClusterRole", "Role")
        for role in objects(kind)
    }
    assert bound == granted
    assert pod()["spec"]["serviceAccountName"] == account["name"]
    assert the("Deployment")["metadata"]["namespace"] == account["namespace"]


def test_in_aws_volumes_may_be_looked_up_and_nothing_else():
    policy_text = json.loads((MANIFESTS / "iam" / "webhook-policy.json").read_text())

    assert [(each["Effect"], each["Action"]) for each in policy_text["Statement"]] == [
        ("Allow", "ec2:DescribeVolumes")
    ]


# -- the pods


def test_the_pod_meets_the_restricted_standard_with_a_read_only_root():
    own, all_containers = container()["securityContext"], pod()["spec"]["securityContext"]

    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert all_containers["runAsNonRoot"] is True
    assert all_containers["runAsUser"] > 0
    assert all_containers["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_selectors_find_the_pods():
    spread = [each["labelSelector"] for each in pod()["spec"]["topologySpreadConstraints"]]
    matched = [each["matchLabels"] for each in spread]
    matched += [the("Deployment")["spec"]["selector"]["matchLabels"]]
    matched += [the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]
    matched += [the("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]]
    matched += [the("Service")["spec"]["selector"]]

    assert pod()["metadata"]["labels"] == SELECTOR
    assert matched == [SELECTOR] * 6


def test_there_is_always_a_replica_to_ask():
    rollout = the("Deployment")["spec"]

    assert rollout["replicas"] == 2
    assert rollout["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert the("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_nothing_that_the_pod_needs_can_be_held_up_by_its_own_webhooks():
    namespace = the("Deployment")["metadata"]["namespace"]

    assert "volumes" not in pod()["spec"]
    for hook in all_hooks():
        if hook["rules"][0]["scope"] == "Namespaced":
            (excluded,) = [
                each["values"]
                for each in hook["namespaceSelector"]["matchExpressions"]
                if (each["key"], each["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
            ]
            assert {namespace, "kube-system"} <= set(excluded), hook["name"]


def test_the_ports_are_those_of_the_options():
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    (service,) = the("Service")["spec"]["ports"]
    allowed = {
        port["port"] for rule in the("NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]
    }
    command, *arguments = container()["args"]
    context = serve.make_context(command, arguments)

    assert context.params["listen"] == f":{ports['https']}" == Settings().listen
    assert context.params["metrics_address"] == f":{ports['metrics']}"
    assert (service["port"], service["targetPort"]) == (443, "https")
    assert allowed == set(ports)
    probes = [container()[each]["httpGet"] for each in ("livenessProbe", "readinessProbe")]
    assert [(each["path"], each["port"]) for each in probes] == [
        ("/healthz", "metrics"),
        ("/readyz", "metrics"),
    ]


def test_the_command_is_installed_and_takes_the_arguments():
    scripts = re.findall(
        r'^([\w-]+) = "([\w.]+):main"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    command, *arguments = container()["args"]

    assert container()["command"] == ["ebs-webhook"]
    assert ("ebs-webhook", "webhook.cli") in scripts
    assert command == serve.name
    assert serve.make_context(command, arguments).params["strict"] is False


def test_the_environment_names_are_those_of_options():
    options = {f"{PREFIX}{option.name.upper()}" for option in serve.params if option.name}
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    literals = [literal.partition("=")[0] for literal in generator["literals"]]
    documented = re.findall(rf"{PREFIX}\w+(?==)", (FOLDER / "kustomization.yaml").read_text())
    own = [each["name"] for each in container()["env"] if each["name"].startswith("EBS_")]

    assert {*literals, *documented, *own} <= options
    assert own == [f"{PREFIX}NAMESPACE"]
    assert container()["envFrom"] == [{"configMapRef": {"name": generator["name"]}}]
    # Kustomize takes every equal name for a reference, and appends the hash to it.
    assert generator["name"] not in str(rules())


def test_the_grace_period_is_longer_than_the_webhook_takes_to_end():
    takes_s = Settings().notice_s + Settings().drain_s

    assert pod()["spec"]["terminationGracePeriodSeconds"] >= takes_s + 10
    # Beside the notice, which does not wait for them.
    assert Settings().notice_s >= app._FLUSH_S + lease._RELEASE_S
    assert Settings().drain_s > max(hook["timeoutSeconds"] for hook in all_hooks())


def test_the_image_is_that_of_this_version():
    (image,) = KUSTOMIZATION["images"]
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)

    assert version is not None
    assert image["newTag"] == version[1]
    assert container()["image"] == image["name"]


def test_the_defaults_are_the_names_in_the_manifests():
    options, deployed = Settings(), the("Deployment")["metadata"]

    assert options.namespace == deployed["namespace"]
    assert the("Service")["metadata"]["name"] == options.service
    assert the("Secret")["metadata"]["name"] == options.tls_secret
    for kind in ("Mutating", "Validating"):
        assert the(f"{kind}WebhookConfiguration")["metadata"]["name"] == names.NAME


def test_what_the_webhook_keeps_is_applied_empty():
    assert the("Secret").keys() == {"apiVersion", "kind", "metadata", "type"}


# -- the policy


def test_the_account_is_held_to_the_labels_that_the_code_writes():
    policy_of = the("ValidatingAdmissionPolicy")["spec"]
    (named,) = policy_of["variables"]

    assert json.loads(named["expression"]) == [*ZONE_AND_REGION_LABELS]
    assert {*ZONE_AND_REGION_LABELS} == labels_in("us-east-1a").keys()
    assert policy_of["failurePolicy"] == "Fail"
    assert "system:serviceaccount:ebs-provisioner:ebs-webhook" in str(policy_of["matchConditions"])


# -- the webhooks


@pytest.mark.parametrize("hook", all_hooks(), ids=lambda hook: str(hook["name"]))
def test_an_outage_of_the_webhook_stops_nothing(hook: Json):
    assert hook["failurePolicy"] == "Ignore"
    assert hook["timeoutSeconds"] <= 5
    assert hook["sideEffects"] == "None"
    assert hook["admissionReviewVersions"] == ["v1"]


@pytest.mark.parametrize("hook", all_hooks(), ids=lambda hook: str(hook["name"]))
def test_a_webhook_points_at_a_path_for_what_it_is_about(hook: Json):
    service = hook["clientConfig"]["service"]
    (rule,) = hook["rules"]

    assert "caBundle" not in hook["clientConfig"]
    assert (service["name"], service["namespace"]) == (names.NAME, names.NAMESPACE)
    assert {
        (group, resource) for group in rule["apiGroups"] for resource in rule["resources"]
    } == SUBJECTS[service["path"]]
    assert rule["operations"] == (["UPDATE"] if hook["name"].startswith("relabel.") else ["CREATE"])


def test_the_sandbox_has_the_same_webhooks_asked_by_url():
    for configuration in installation.configurations_by_url("https://127.0.0.1:9443"):
        applied = the(configuration["kind"])
        for hook, by_service in zip(configuration["webhooks"], applied["webhooks"], strict=True):
            path = by_service["clientConfig"]["service"]["path"]
            assert hook == by_service | {"clientConfig": {"url": f"https://127.0.0.1:9443{path}"}}


def test_every_path_has_a_webhook():
    paths = [hook["clientConfig"]["service"]["path"] for hook in all_hooks()]

    assert set(paths) == set(SUBJECTS)


def test_labelling_may_be_asked_for_again():
    assert [hook["reinvocationPolicy"] for hook in hooks("Mutating")] == ["IfNeeded"] * 2


def test_what_a_provisioner_makes_is_not_asked_about():
    (controller,) = yaml.safe_load_all((MANIFESTS / "service-account.yaml").read_text())
    account = controller["metadata"]
    ours = f'"system:serviceaccount:{account["namespace"]}:{account["name"]}"'
    created = [
        hook
        for hook in all_hooks()
        if str(hook["name"]).endswith("persistentvolumes.ebs-provisioner.io")
    ]

    for hook in created:
        condition = str(hook["matchConditions"])
        assert (ours in condition) == (hook["rules"][0]["operations"] == ["CREATE"])


def test_a_change_is_asked_about_for_the_labels_that_the_webhook_corrects():
    (relabel,) = [
        hook for hook in hooks("Mutating") if hook["rules"][0]["operations"] == ["UPDATE"]
    ]
    conditions = {each["name"]: each["expression"] for each in relabel["matchConditions"]}

    for key in labels_in("us-east-1a"):
        assert f'"{key}"' in conditions["a-label-of-its-place-changes"]
    assert (
        f'"system:serviceaccount:{names.NAMESPACE}:{names.NAME}"'
        in conditions["not-by-the-repairs"]
    )


def test_all_that_is_not_a_binding_is_narrowed_down_by_what_the_object_says():
    conditions = {hook["name"]: hook.get("matchConditions") for hook in all_hooks()}

    assert [name for name, each in conditions.items() if not each] == [
        "bindings.ebs-provisioner.io"
    ]
    for each in (
        *(
            "label.persistentvolumes",
            "relabel.persistentvolumes",
            "persistentvolumes",
            "storageclasses",
        ),
    ):
        assert f'"{EBS_DRIVER}"' in str(conditions[f"{each}.ebs-provisioner.io"])


def test_bindings_are_guarded_where_the_namespace_says_so_and_in_the_overlay_unless_it_says_not():
    guard, label = "bindings.ebs-provisioner.io", "ebs-provisioner.io/zone-guard"
    (base,) = [hook for hook in hooks() if hook["name"] == guard]
    (patch,) = objects(
        "ValidatingWebhookConfiguration", MANIFESTS / "webhook-zone-guard" / "bindings.yaml"
    )
    (widened,) = patch["webhooks"]

    def asked(hook: Json) -> list[Json]:
        every: list[Json] = hook["namespaceSelector"]["matchExpressions"]
        return [{**each, "key": ""} for each in every if each["key"] == label]

    assert asked(base) == [{"key": "", "operator": "In", "values": ["enforce"]}]
    assert asked(widened) == [{"key": "", "operator": "NotIn", "values": ["off"]}]
    assert widened["name"] == guard
    system = next(
        each["values"]
        for each in widened["namespaceSelector"]["matchExpressions"]
        if each["key"] == "kubernetes.io/metadata.name"
    )
    # With the webhook down each bind of these would wait for it.
    ours = {names.NAMESPACE, "ebs-provisioner-node", "ebs-webhook"}
    assert {"kube-system", "kube-public", "kube-node-lease", *ours} == set(system)


def test_growing_and_changing_never_asks_the_webhook():
    """Neither waits for it, nor fails when it is away: both change what is there already."""
    files = [
        path for path in MANIFESTS.glob("webhook*/*.yaml") if path.name != "kustomization.yaml"
    ]
    kinds = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
    rules = [
        rule
        for kind in kinds
        for configuration in objects(kind, *files)
        for hook in configuration["webhooks"]
        for rule in hook.get("rules", ())  # a patch has none
    ]
    volumes = {"persistentvolumeclaims", "persistentvolumes"}
    of_volumes = [rule for rule in rules if volumes & set(rule["resources"])]

    assert of_volumes
    # The one for UPDATE is for a change of labels alone, as its condition says.
    changes = [rule for rule in of_volumes if rule["operations"] != ["CREATE"]]
    assert [(rule["operations"], rule["resources"]) for rule in changes] == [
        (["UPDATE"], ["persistentvolumes"])
    ]
    assert not [each for rule in rules for each in rule["resources"] if "/status" in each]


def test_the_page_gives_the_account_the_role_that_trusts_it():
    account, text = the("ServiceAccount"), page("webhook")
    (example,) = re.findall(r"^patches:\n.*?(?=^```)", text, re.MULTILINE | re.DOTALL)
    (patch,) = yaml.safe_load(example)["patches"]
    changed = applied(account, yaml.safe_load(patch["patch"]))

    meta = account["metadata"]
    assert f"`system:serviceaccount:{meta['namespace']}:{meta['name']}`" in text
    assert patch["target"] == {"kind": account["kind"], "name": meta["name"]}
    assert "eks.amazonaws.com/role-arn" in changed["metadata"]["annotations"]


@pytest.mark.parametrize("name", ["webhook", "install"])
def test_the_webhook_is_removed_as_it_was_applied(name: str):
    (applied_as,) = re.findall(r"apply -k (my-\S+)", page("webhook"))

    assert re.findall(r"delete -k ([\w/-]*webhook)", page(name)) == [applied_as]


def test_the_example_on_the_page_says_that_its_volume_is_not_yours():
    (line,) = re.findall(
        r"^kubectl create -f docs/examples/static-volume.*$", page("webhook"), re.MULTILINE
    )

    assert "put your volume's id in" in line
