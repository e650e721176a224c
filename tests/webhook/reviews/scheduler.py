"""What kube-scheduler makes of a persistent volume and a node of which it knows every label."""

from provisioner.model.node_affinity import BETA_REGION_LABEL, REGION_LABEL, terms_of
from provisioner.model.zone import BETA_ZONE_LABEL, ZONE_LABEL


def terms_before(persistent_volume):
    return terms_of((persistent_volume["spec"].get("nodeAffinity") or {}).get("required"))


def expressions(term):
    return term.get("matchExpressions") or []


def volume_zone(labels, node):
    """What the scheduler's filter VolumeZone makes of labels, as of Kubernetes 1.36."""
    newer = {BETA_ZONE_LABEL: ZONE_LABEL, BETA_REGION_LABEL: REGION_LABEL}
    return all(
        node.get(key, node.get(newer.get(key, key))) in set(value.split("__"))
        for key, value in labels.items()
        if key in {*newer, *newer.values()}
    )


def matches(terms, node):
    """What its filter VolumeBinding makes of node selector terms."""
    return any(
        (expressions(term) or term.get("matchFields"))
        and all(holds(each, node) for each in expressions(term))
        and all(each["values"] == [node["name"]] for each in term.get("matchFields") or ())
        for term in terms
    )


def holds(expression, node):
    values: list[str] = expression.get("values") or []
    found = node.get(expression["key"])
    match expression["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" as operator:
            numbers = [found, *values]
            if len(numbers) != 2 or not all(str(n).isdecimal() for n in numbers):
                return False
            return (int(found) > int(values[0])) == (operator == "Gt") and found != values[0]
    raise AssertionError(expression)
