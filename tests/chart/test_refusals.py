"""Values that cannot work: one clear sentence each, and nothing is rendered."""

from typing import Any

import botocore.session
import pytest
import yaml

from provisioner.cli import commands, controller
from provisioner.node.commands import node
from tests.chart.helm import (
    BIG,
    CHART_FOLDER,
    built,
    of_terms,
    refusal,
    rendered,
    required,
)
from webhook.cli import commands as webhook_commands
from webhook.cli import serve

Json = dict[str, Any]
pytestmark = built


CASES: dict[str, tuple[Json, str]] = {
    "the stock driver's image": (
        {"image": {"repository": "public.ecr.aws/ebs-csi-driver/aws-ebs-csi-driver"}},
        "image.repository is public.ecr.aws/ebs-csi-driver/aws-ebs-csi-driver, the stock driver's image: name the repository of ebs-provisioner's",
    ),
    "nodes are initialized without a cluster's id": (
        {"controller": {"initializeNodes": True}},
        "controller.initializeNodes needs controller.k8sTagClusterId",
    ),
    "an id that is no tag": (
        {"controller": {"k8sTagClusterId": "my cluster"}},
        'controller.k8sTagClusterId is "my cluster": it is part of a tag\'s key, so it may hold no space',
    ),
    "a zone for a region": (
        {"controller": {"region": "eu-central-1a"}},
        "controller.region is eu-central-1a, a zone: its region is eu-central-1",
    ),
    "no region at all": (
        {"webhook": {"enabled": True, "region": "Frankfurt"}},
        'webhook.region is "Frankfurt", which is no region: expected one like eu-central-1',
    ),
    "tags without tags": (
        {"controller": {"reconcileExtraVolumeTags": True}},
        "controller.reconcileExtraVolumeTags needs controller.extraVolumeTags",
    ),
    "a comma in a tag": (
        {"controller": {"extraVolumeTags": {"team": "a,b"}}},
        "controller.extraVolumeTags: team=a,b has a comma",
    ),
    "AWS's own tags": (
        {"controller": {"extraVolumeTags": {"aws:team": "a"}}},
        "controller.extraVolumeTags: aws:team is reserved",
    ),
    "a zone of the European Sovereign Cloud": (
        {"controller": {"region": "eusc-de-east-1a"}},
        "controller.region is eusc-de-east-1a, a zone: its region is eusc-de-east-1",
    ),
    "a tag in the repository": (
        {"image": {"repository": "registry.example:5000/ebs-provisioner:0.2.0"}},
        "image.repository is registry.example:5000/ebs-provisioner:0.2.0: set the tag as image.tag",
    ),
    "a registry without a slash": (
        {"image": {"containerRegistry": "docker.io"}},
        "image.containerRegistry is docker.io: it must end in a slash",
    ),
    "no disruption at all": (
        {"controller": {"podDisruptionBudget": {"maxUnavailable": 0}}},
        "controller.podDisruptionBudget.maxUnavailable is 0: no pod could be evicted",
    ),
    "a share of no disruption": (
        {"controller": {"podDisruptionBudget": {"maxUnavailable": "0%"}}},
        "controller.podDisruptionBudget.maxUnavailable is 0%: no pod could be evicted",
    ),
    "all replicas needed": (
        {"controller": {"podDisruptionBudget": {"minAvailable": 2}}},
        "controller.podDisruptionBudget.minAvailable is 2, and controller.replicaCount 2: no pod",
    ),
    "a share that is rounded up to all replicas": (
        {"controller": {"replicaCount": 3, "podDisruptionBudget": {"minAvailable": "67%"}}},
        "controller.podDisruptionBudget.minAvailable is 67%, and controller.replicaCount 3: no pod",
    ),
    "a deployment that cannot roll": (
        {
            "controller": {
                "updateStrategy": {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": 0}}
            }
        },
        "controller.updateStrategy.rollingUpdate: maxSurge and maxUnavailable are both 0",
    ),
    "a daemon set that cannot roll": (
        {"node": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}},
        "node.updateStrategy.rollingUpdate.maxUnavailable is 0, and maxSurge must be 0",
    ),
    "alerts about a controller that nobody scrapes": (
        {"prometheusRule": {"enabled": True}, "node": {"enableMetrics": True}},
        "prometheusRule.enabled needs controller.enableMetrics",
    ),
    "alerts about nodes that nobody scrapes": (
        {"prometheusRule": {"enabled": True}, "nodeComponentOnly": True},
        "prometheusRule.enabled needs node.enableMetrics",
    ),
    "two limits of disruption": (
        {"controller": {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}},
        "controller.podDisruptionBudget: minAvailable and maxUnavailable exclude each other",
    ),
    "an option of the stock controller": (
        {"controller": {"additionalArgs": ["--warn-on-invalid-tag=true"]}},
        "controller.additionalArgs: --warn-on-invalid-tag is no option of this program",
    ),
    "an option of the stock node plugin": (
        {"node": {"additionalArgs": ["--windows-host-process"]}},
        "node.additionalArgs: --windows-host-process is no option of this program",
    ),
    "two limits of a node": (
        {"node": {"volumeAttachLimit": 20, "reservedVolumeAttachments": 2}},
        "node: volumeAttachLimit and reservedVolumeAttachments exclude each other",
    ),
    "two limits of a group, one of them inherited": (
        {
            "node": {"volumeAttachLimit": 20},
            "additionalDaemonSets": {"big": {**BIG, "reservedVolumeAttachments": 2}},
        },
        "additionalDaemonSets.big: volumeAttachLimit and reservedVolumeAttachments exclude each other",
    ),
    "a group on all nodes": (
        {"additionalDaemonSets": {"big": {"volumeAttachLimit": 20}}},
        "additionalDaemonSets.big has no nodeSelector or affinity of its own",
    ),
    "two groups on the same nodes": (
        {"additionalDaemonSets": {"big": BIG, "large": BIG}},
        "additionalDaemonSets.big and additionalDaemonSets.large can select the same nodes",
    ),
    "a group that cannot be left out by itself": (
        {"additionalDaemonSets": {"big": {"nodeSelector": {"size": "big", "zone": "a"}}}},
        "additionalDaemonSets.big selects by more than one label",
    ),
    "a group by more labels than node's": (
        {
            "node": {"nodeSelector": {"arch": "arm64"}},
            "additionalDaemonSets": {"big": {"nodeSelector": {"size": "big", "zone": "a"}}},
        },
        "additionalDaemonSets.big selects by more than one label",
    ),
    "a group by its affinity alone": (
        {"additionalDaemonSets": {"big": {"affinity": required("size", "In", "big")}}},
        "additionalDaemonSets.big selects by its affinity alone",
    ),
    "a group by an affinity to what node selects": (
        {
            "node": {"nodeSelector": {"size": "big"}},
            "additionalDaemonSets": {"big": {"affinity": required("size", "In", "big")}},
        },
        "additionalDaemonSets.big selects by its affinity alone",
    ),
    "a group by an affinity to what node's affinity allows": (
        {
            "node": {"affinity": required("size", "NotIn", "small")},
            "additionalDaemonSets": {"big": {"affinity": required("size", "In", "big", "small")}},
        },
        "additionalDaemonSets.big selects by its affinity alone",
    ),
    "a group of whose terms one is on node's nodes": (
        {
            "node": {"affinity": required("size", "NotIn", "big")},
            "additionalDaemonSets": {
                "big": {
                    "affinity": of_terms(
                        [{"key": "size", "operator": "In", "values": ["big"]}],
                        [{"key": "arch", "operator": "In", "values": ["arm64"]}],
                    )
                }
            },
        },
        "additionalDaemonSets.big selects by its affinity alone",
    ),
    "two groups by different labels": (
        {"additionalDaemonSets": {"arm": {"nodeSelector": {"arch": "arm64"}}, "big": BIG}},
        "additionalDaemonSets.arm and additionalDaemonSets.big can select the same nodes",
    ),
    "a group by what node selects": (
        {"node": {"nodeSelector": {"size": "big"}}, "additionalDaemonSets": {"big": BIG}},
        "additionalDaemonSets.big and node can select the same nodes",
    ),
    "an account of a group": (
        {"additionalDaemonSets": {"big": {**BIG, "serviceAccount": {"name": "mine"}}}},
        "additionalDaemonSets.big.serviceAccount: all groups have the account of `node`",
    ),
    "a group that is off": (
        {"additionalDaemonSets": {"big": {**BIG, "enableLinux": False}}},
        "additionalDaemonSets.big.enableLinux is false, and node.enableLinux is true",
    ),
    "an option of the stock node plugin in a group": (
        {"additionalDaemonSets": {"big": {**BIG, "additionalArgs": ["--windows-host-process"]}}},
        "additionalDaemonSets.big.additionalArgs: --windows-host-process is no option",
    ),
    "metadata of the stock labeler in a group": (
        {"additionalDaemonSets": {"big": {**BIG, "metadataSources": "metadata-labeler"}}},
        'additionalDaemonSets.big.metadataSources is "metadata-labeler"',
    ),
    "traces of a group": (
        {"additionalDaemonSets": {"big": {**BIG, "otelTracing": {"otelServiceName": "a"}}}},
        "controller.otelTracing and node.otelTracing: there are no traces",
    ),
    "leases where the rights are not": (
        {"controller": {"additionalArgs": ["--leader-election-namespace=mine"]}},
        "controller.additionalArgs: --leader-election-namespace is set by the chart, because its other objects depend on it: set controller.leaderElectionNamespace",
    ),
    "metrics where no probe asks": (
        {"node": {"additionalArgs": ["--metrics-address=:9090"]}},
        "node.additionalArgs: --metrics-address is set by the chart",
    ),
    "a variable where the preStop hook sees none": (
        {"node": {"additionalArgs": ["--token-file=$(FOLDER)/token"]}},
        "node.additionalArgs refers to a variable, which Kubernetes would not put into the same arguments of the preStop hook: set the option in node.env",
    ),
    "a port to which no Service leads": (
        {"webhook": {"enabled": True, "additionalArgs": ["--listen=:9443"]}},
        "webhook.additionalArgs: --listen is set by the chart",
    ),
    "two leaders": (
        {"controller": {"additionalArgs": ["--no-leader-elect"]}},
        "controller.additionalArgs: --no-leader-elect is set by the chart",
    ),
    "two leaders by a variable": (
        {
            "controller": {
                "env": [{"name": "EBS_PROVISIONER_CONTROLLER_LEADER_ELECT", "value": "false"}]
            }
        },
        "controller.env: EBS_PROVISIONER_CONTROLLER_LEADER_ELECT is set by the chart, because its other objects depend on it: two replicas would work at the same time",
    ),
    "two ids of a cluster": (
        {"controller": {"additionalArgs": ["--cluster-id=other"]}},
        "controller.additionalArgs: --cluster-id is set by the chart, because its other objects depend on it: set controller.k8sTagClusterId",
    ),
    "another driver by a variable": (
        {"controller": {"env": [{"name": "EBS_PROVISIONER_CONTROLLER_DRIVER_NAME", "value": "x"}]}},
        "controller.env: EBS_PROVISIONER_CONTROLLER_DRIVER_NAME is set by the chart",
    ),
    "another path by a variable": (
        {"node": {"env": [{"name": "EBS_PROVISIONER_NODE_KUBELET_DIR", "value": "/x"}]}},
        "node.env: EBS_PROVISIONER_NODE_KUBELET_DIR is set by the chart",
    ),
    "another path by a variable of a group": (
        {
            "additionalDaemonSets": {
                "big": {**BIG, "env": [{"name": "EBS_PROVISIONER_NODE_KUBELET_DIR", "value": "/x"}]}
            }
        },
        "additionalDaemonSets.big.env: EBS_PROVISIONER_NODE_KUBELET_DIR is set by the chart",
    ),
    "another port by a variable": (
        {
            "webhook": {
                "enabled": True,
                "env": [{"name": "EBS_WEBHOOK_SERVE_LISTEN", "value": ":1"}],
            }
        },
        "webhook.env: EBS_WEBHOOK_SERVE_LISTEN is set by the chart",
    ),
    "two regions": (
        {
            "controller": {
                "region": "eu-central-1",
                "env": [{"name": "AWS_REGION", "value": "eu-west-1"}],
            }
        },
        "controller.env: AWS_REGION is set by the chart, because its other objects depend on it: set controller.region",
    ),
    "two plugins while a node updates": (
        {"node": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}},
        "node.updateStrategy.rollingUpdate.maxSurge must be 0",
    ),
    "a group without the rights to mount": (
        {
            "additionalDaemonSets": {
                "big": {**BIG, "containerSecurityContext": {"privileged": False}}
            }
        },
        "additionalDaemonSets.big.containerSecurityContext.privileged must be true",
    ),
    "a relative path": (
        {"node": {"kubeletPath": "var/lib/kubelet"}},
        'node.kubeletPath is "var/lib/kubelet": expected an absolute path',
    ),
    "metadata of the stock labeler": (
        {"node": {"metadataSources": "metadata-labeler"}},
        'node.metadataSources is "metadata-labeler"',
    ),
    "nothing to install": (
        {"nodeComponentOnly": True, "node": {"enableLinux": False}},
        "nodeComponentOnly=true and node.enableLinux=false leave nothing to install",
    ),
    "two default classes": (
        {
            "defaultStorageClass": {"enabled": True},
            "storageClasses": [
                {
                    "name": "mine",
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                }
            ],
        },
        "mine and ebs-csi-default-sc would all be the cluster's default StorageClass",
    ),
    "one class twice": (
        {"storageClasses": [{"name": "mine"}, {"name": "mine"}]},
        "storageClasses names mine twice",
    ),
    "a period that Kubernetes refuses": (
        {"nodeAllocatableUpdatePeriodSeconds": 5},
        "nodeAllocatableUpdatePeriodSeconds is 5: Kubernetes allows at least 10",
    ),
    "certificates that nobody trusts": (
        {"webhook": {"enabled": True, "certificates": "provided"}},
        "webhook.certificates=provided needs webhook.caBundle",
    ),
    "an issuer that nobody asks": (
        {"webhook": {"enabled": True, "certManager": {"issuerRef": {"name": "ca"}}}},
        "webhook.certManager.issuerRef is for certificates=cert-manager",
    ),
    **{
        f"a stock {sidecar} that asks for no lease": (
            {
                "besideStock": {"controller": True},
                "sidecars": {sidecar: {"leaderElection": {"enabled": False}}},
            },
            f"besideStock.controller: sidecars.{sidecar}.leaderElection.enabled is false, so the stock controller asks for no lease, and both controllers would work at the same time",
        )
        for sidecar in ("provisioner", "attacher")
    },
    "a label by which a selector finds its pods": (
        {"controller": {"podLabels": {"app.kubernetes.io/component": "storage"}}},
        "controller.podLabels: app.kubernetes.io/component is set by the chart",
    ),
    "a label by which Helm finds its objects": (
        {"customLabels": {"app.kubernetes.io/managed-by": "us"}},
        "customLabels: app.kubernetes.io/managed-by is set by the chart",
    ),
    "one account for two programs": (
        {
            "controller": {"serviceAccount": {"name": "storage"}},
            "webhook": {"enabled": True, "serviceAccount": {"name": "storage", "create": False}},
        },
        "controller.serviceAccount.name and webhook.serviceAccount.name are both storage in namespace ebs-provisioner: each program has rights and limits of its own, and would have the other's too; name another account",
    ),
    "one account for a program in one namespace with another": (
        {
            "controller": {"serviceAccount": {"name": "storage"}},
            "node": {"namespaceOverride": "", "serviceAccount": {"name": "storage"}},
        },
        "controller.serviceAccount.name and node.serviceAccount.name are both storage",
    ),
    "a webhook that is off": (
        {"webhook": {"strict": True}},
        "webhook.strict is set, and webhook.enabled is false",
    ),
}
SCHEMA: dict[str, tuple[Json, str]] = {
    "a key that nobody knows": ({"controler": {}}, "'controler' not allowed"),
    "a key in a wrong place": ({"node": {"region": "eu-central-1"}}, "'region' not allowed"),
    "a word for a number": ({"controller": {"replicaCount": "two"}}, "/controller/replicaCount"),
    "no replica": ({"controller": {"replicaCount": 0}}, "minimum: got 0, want 1"),
    "a class that Kubernetes does not know": (
        {"storageClasses": [{"name": "mine", "reclaimPolicy": "Keep"}]},
        "must be one of 'Delete', 'Retain'",
    ),
    "a snapshot class without a policy": (
        {"volumeSnapshotClasses": [{"name": "mine"}]},
        "missing property 'deletionPolicy'",
    ),
    "a tag that YAML reads as a number": ({"image": {"tag": 1.10}}, "/image/tag"),
    "a label that is none": ({"customLabels": {"team": "my team!"}}, "/customLabels/team"),
    "a class's name that is none": ({"storageClasses": [{"name": "Fast"}]}, "/storageClasses/0"),
    "an authority that is no base64": (
        {"webhook": {"enabled": True, "certificates": "provided", "caBundle": "-----BEGIN"}},
        "/webhook/caBundle",
    ),
    "an issuer without a name": (
        {
            "webhook": {
                "enabled": True,
                "certificates": "cert-manager",
                "certManager": {"issuerRef": {"kind": "ClusterIssuer"}},
            }
        },
        "/webhook/certManager/issuerRef",
    ),
    "a share that is none": (
        {"controller": {"podDisruptionBudget": {"maxUnavailable": "half"}}},
        "/controller/podDisruptionBudget/maxUnavailable",
    ),
    "a strategy of DaemonSets": (
        {"controller": {"updateStrategy": {"type": "OnDelete"}}},
        "/controller/updateStrategy/type",
    ),
    "a strategy of Deployments": (
        {"node": {"updateStrategy": {"type": "Recreate"}}},
        "/node/updateStrategy/type",
    ),
    "memory that is none": (
        {"controller": {"resources": {"limits": {"memory": "lots"}}}},
        "/controller/resources/limits/memory",
    ),
    "a spread that Kubernetes does not know": (
        {"controller": {"topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 1}]}},
        "missing property 'whenUnsatisfiable'",
    ),
    "a port that is none": ({"webhook": {"egressPorts": [70000]}}, "/webhook/egressPorts/0"),
    "a format of logs": ({"node": {"loggingFormat": "xml"}}, "must be one of 'text', 'json'"),
}


@pytest.mark.parametrize("name", CASES)
def test_values_that_contradict_are_one_sentence(name: str):
    values, sentence = CASES[name]

    said = refusal(values)

    assert f"- {sentence}" in said
    assert said.count("\n- ") == 1


@pytest.mark.parametrize("name", SCHEMA)
def test_the_schema_names_the_value_and_what_it_may_be(name: str):
    values, sentence = SCHEMA[name]

    assert sentence in refusal(values)


def test_a_null_for_what_the_chart_cannot_do_without_is_named():
    """Helm takes a key whose value is null out of the values."""
    needed = {
        "controller": (
            "leaderElectionNamespace",
            "loggingFormat",
            "serviceAccount",
            "replicaCount",
        ),
        "image": ("repository",),
        "node": ("kubeletPath", "serviceAccount", "serviceMonitor"),
        "webhook": ("certificates", "hostNetwork", "strict"),
    }

    said = refusal({name: dict.fromkeys(keys) for name, keys in needed.items()} | {"proxy": None})

    for keys in (*needed.values(), ("proxy",)):
        assert [key for key in keys if f"'{key}'" not in said] == []
    assert "nil pointer" not in said


def test_accounts_of_one_name_in_namespaces_of_their_own_are_accepted():
    named = {"serviceAccount": {"name": "storage"}}

    assert rendered({"controller": named, "node": named, "webhook": named})


def test_all_that_is_wrong_is_said_at_once():
    said = refusal(
        {"controller": {"region": "eu-central-1a", "initializeNodes": True}, "fips": True}
    )

    assert said.count("\n- ") == 3


def test_budgets_that_let_one_pod_go_are_accepted():
    for budget in ({"minAvailable": "66%"}, {"minAvailable": 2}, {"maxUnavailable": "1%"}):
        assert rendered({"controller": {"replicaCount": 3, "podDisruptionBudget": budget}})
    off = {"enabled": False, "maxUnavailable": 0}
    assert rendered({"controller": {"podDisruptionBudget": off}})


def test_the_regions_of_every_partition_are_accepted():
    """One of each form: how long its first word is, and how many there are."""
    partitions = botocore.session.get_session().get_component("data_loader").load_data("partitions")
    regions = [each for part in partitions["partitions"] for each in part["regions"]]
    forms = {
        (len(each.split("-")[0]), each.count("-")): each
        for each in regions
        if not each.endswith("-global")
    }

    assert "eusc-de-east-1" in forms.values()
    for region in forms.values():
        assert rendered({"controller": {"region": region}})


def test_the_options_that_arguments_are_held_to_are_those_of_the_programs():
    known = yaml.safe_load((CHART_FOLDER / "options.yaml").read_text())

    for name, command in {"controller": controller, "node": node, "webhook": serve}.items():
        options = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
        assert set(known[name].split()) == options
        held = {each for each in known["set"][name] if each.startswith("--")}
        assert held < options
        assert known["set"][name].keys() - held <= {"AWS_REGION"}
        # `env` is held to them by the names of their variables.
        named = {word: each.name or "" for each in command.params for word in each.opts}
        for option in held & named.keys():
            assert f"--{named[option].replace('_', '-')}" == option


def test_each_option_that_the_chart_sets_has_its_variable():
    known = yaml.safe_load((CHART_FOLDER / "options.yaml").read_text())
    programs = {
        "controller": (commands, controller),
        "node": (commands, node),
        "webhook": (webhook_commands, serve),
    }

    for name, (group, command) in programs.items():
        prefix = f"{group.context_settings['auto_envvar_prefix']}_{command.name}".upper()
        assert known["variables"][name] == f"{prefix}_"
