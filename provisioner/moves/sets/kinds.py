"""Where the kinds that only moves of StatefulSets read are in the API."""

from provisioner.kube.resources import Resource
from provisioner.moves.sets.kind_rules import DisruptionBudget, SetPod, StatefulSet

SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", StatefulSet)
SET_PODS = Resource("", "v1", "pods", "Pod", SetPod)
BUDGETS = Resource(
    *("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"), DisruptionBudget
)
