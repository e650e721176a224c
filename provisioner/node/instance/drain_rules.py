"""Decide whether a node is going away, so that its node plugin outlasts its volumes.

Source: aws-ebs-csi-driver v1.64 docs (pre-stop hook); cluster-autoscaler's and Karpenter's taints;
Kubernetes "Node Shutdowns"; kubelet 1.36 pkg/kubelet/nodeshutdown, nodestatus (`ReadyCondition`
puts what it says among other reasons, in the message).
"""

from provisioner.model.taint import CORDONED, OUT_OF_SERVICE
from provisioner.node.instance.documents import NodeView

_GOING = frozenset(
    {
        CORDONED.key,
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",  # before Karpenter 1.0
        OUT_OF_SERVICE.key,
    }
)
# kubelet's, once systemd has told it; each pod ends then, the plugin's among the last.
_SHUTTING_DOWN = "node is shutting down"


def why_going(node: NodeView | None) -> str:
    """What shows that a node is going away, in short; "" if it stays.

    None stands for a Node that the API server itself lacks.
    """
    if node is None:
        return "its Node is gone"
    if node.deleting:
        return "its Node is being deleted"
    if node.spec.unschedulable:
        return "it is cordoned"
    if node.ready.status == "False" and _SHUTTING_DOWN in node.ready.message:
        return "its machine is shut down"
    return next(
        (
            f"it has the taint {taint.key}"
            for taint in node.spec.taints or ()
            if taint.key in _GOING
        ),
        "",
    )
