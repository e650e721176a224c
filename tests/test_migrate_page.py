"""What the page on migration says to set, held to the programs and to the other driver."""

import re
from fnmatch import fnmatchcase

import yaml

from provisioner.model import tags
from tests.chart.stock import KEYS
from tests.documents import ROOT, first_column, page, section

OWNER = tags.Owner("default", "data", "pvc-1", "Delete")


def test_with_the_settings_for_kops_its_role_can_use_what_ours_has_made():
    """Its policies ask for this tag: kOps 268927e, pkg/model/iam/iam_builder.go."""
    found = re.findall(r"^EBS_PROVISIONER_CONTROLLER_(\w+)=(.+)$", page("migrate"), re.MULTILINE)
    literals = dict(found)
    extra = tags.rendered(tags.parse_extra(literals["EXTRA_TAGS"]), OWNER)
    cluster_id = literals["CLUSTER_ID"]
    volume = dict(tags.of_new_volume(OWNER, cluster_id=cluster_id, extra=extra))
    snapshot = dict(tags.of_new_snapshot("snapshot-1", cluster_id=cluster_id, extra=extra))

    assert volume["KubernetesCluster"] == snapshot["KubernetesCluster"] == cluster_id
    assert "KubernetesCluster" not in dict(
        tags.of_new_snapshot("snapshot-1", cluster_id=cluster_id, extra={})
    )


def test_kops_lets_go_of_its_role_once_ours_is_ready_and_right_before_it_leads():
    """With managed: false, `kops update cluster` deletes the role, which the leader still uses."""
    (passage,) = re.findall(r"^\*\*kOps\*\*.*?(?=^## )", page("migrate"), re.MULTILINE | re.DOTALL)
    told = ["after step 5", "before step 6", "deletes the role", "give our controller another role"]
    places = [passage.find(each) for each in told]

    assert places[0] > -1
    assert places == sorted(places)
    assert places[-1] < passage.index("managed: false")


def test_with_kops_the_rights_go_to_the_instances_that_run_our_controller():
    (paragraph,) = re.findall(r"^Without `useService.*$", page("migrate"), re.MULTILINE)
    controller = next(
        each
        for each in yaml.safe_load_all((ROOT / "manifests" / "deployment.yaml").read_text())
        if each["kind"] == "Deployment"
    )
    tolerated = controller["spec"]["template"]["spec"]["tolerations"]

    assert "control-plane" not in str(tolerated)
    assert "`spec.externalPolicies.node`" in paragraph
    assert "workers' InstanceGroups" in paragraph


def test_the_election_of_the_stock_controller_has_to_be_on_before_anything_else_is_done():
    _, _, steps = page("migrate").partition("## Change the controller\n")
    first, _, _ = steps.partition("2. **")
    (key,) = re.findall(r"election must be on \(`(.+?)`", first)

    assert {k.split(".")[1] for k in KEYS if fnmatchcase(k, key)} >= {"provisioner", "attacher"}


def test_what_the_stock_chart_deletes_with_its_controller_is_kept_before_and_looked_for_after():
    """Its templates of both ask for ``not nodeComponentOnly``: chart 2.64.0."""
    steps = section("migrate", "Change the controller")
    before, _, after = steps.partition("--set nodeComponentOnly=true")
    kept = re.findall(r"kubectl annotate (\w+) (\S+) helm\.sh/resource-policy=keep", before)

    assert kept == [("csidriver", "ebs.csi.aws.com"), ("storageclass", "ebs-csi-default-sc")]
    assert [f"kubectl get {kind}" in after for kind, _ in kept] == [True, True]


CARRIED = section("migrate", "Carry the stock settings over")
OPTIONS = ROOT / "manifests" / "chart" / "templates" / "_options.tpl"
# What our chart does with them is no option of a program.
OF_MANIFESTS = {"node.selinux", "node.hostNetwork", "nodeAllocatableUpdatePeriodSeconds"}
LOGS = {"controller.logLevel", "node.logLevel"}  # they change nothing for a volume


def options_of_the_chart() -> set[str]:
    """The stock keys that our chart turns into options of the programs."""
    parts = re.split(r'define "ebs\.(\w+)Options"', OPTIONS.read_text())[1:]
    named = {
        f"{component}.{name}"
        for component, text in zip(parts[::2], parts[1::2], strict=True)
        for name in re.findall(r"\$values\.(\w+)", text)
    }
    return {key for key in KEYS if any(f"{key}.".startswith(f"{each}.") for each in named)}


def test_each_stock_setting_that_changes_what_happens_to_volumes_has_a_row():
    rows = first_column(CARRIED, r"[\w.*]+(?:: \w+)?")
    keys = {row.partition(":")[0] for row in rows}
    meant = {key for key in KEYS if any(fnmatchcase(key, each) for each in keys)}

    assert len(options_of_the_chart()) >= 10
    assert (options_of_the_chart() | OF_MANIFESTS) - LOGS - meant == set()
    assert [each for each in keys if not any(fnmatchcase(key, each) for key in KEYS)] == []


def test_the_literals_and_components_of_that_table_exist():
    known = yaml.safe_load((ROOT / "manifests" / "chart" / "options.yaml").read_text())
    wanted = re.findall(r"`EBS_PROVISIONER_(CONTROLLER|NODE)_(\w+)", CARRIED)
    components = re.findall(r"`(manifests/[\w-]+)`", CARRIED)

    assert len(wanted) >= 7
    for program, name in wanted:
        assert f"--{name.lower().replace('_', '-')}" in known[program.lower()].split()
    for each in components:
        assert (ROOT / each / "kustomization.yaml").exists()
