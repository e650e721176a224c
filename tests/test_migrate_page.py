"""What the page on migration says to set, held to the programs and to the other driver."""

import re
from fnmatch import fnmatchcase

from provisioner.model import tags
from tests.chart.stock import KEYS
from tests.documents import page

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


def test_the_election_of_the_stock_controller_has_to_be_on_before_anything_else_is_done():
    _, _, steps = page("migrate").partition("## Change the controller\n")
    first, _, _ = steps.partition("2. **")
    (key,) = re.findall(r"election must be on \(`(.+?)`", first)

    assert {k.split(".")[1] for k in KEYS if fnmatchcase(k, key)} >= {"provisioner", "attacher"}
