"""What the page on migration says to set, held to the programs and to the other driver."""

import re

from provisioner.model import tags
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
