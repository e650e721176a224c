"""Which workloads are controllers of EBS volumes, and which options their manifests give them.

Ours takes its cluster id from an argument, a variable or a ConfigMap (manifests/deployment.yaml,
the chart); that of aws-ebs-csi-driver from --k8s-tag-cluster-id only (v1.64
cmd/options/controller.go, read 2026-11-21).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from provisioner.inspect.reading.setup_kind_rules import Container, DataObject, Variable, Workload
from provisioner.model.meta import KubeObject

OUR_NAME = "ebs-provisioner"
OUR_HOLDER = f"{OUR_NAME}_"
"""How a lease's holder begins that is a controller of this project."""
STOCK_NAME = "aws-ebs-csi-driver"
NAME_LABEL = "app.kubernetes.io/name"
COMPONENT_LABEL = "app.kubernetes.io/component"
CLUSTER_ID_VARIABLE = "EBS_PROVISIONER_CONTROLLER_CLUSTER_ID"
_OUR_CONTROLLERS = (OUR_NAME, f"{OUR_NAME}-controller")
_STOCK_CONTROLLER = "ebs-csi-controller"
# Namespace and name, as our manifests, its chart and the EKS add-on have them.
ACCOUNTS = ((OUR_NAME, f"{OUR_NAME}-controller"), ("kube-system", f"{_STOCK_CONTROLLER}-sa"))
_STOCK_FLAG = "--k8s-tag-cluster-id"
_ID_FLAGS = ("--cluster-id", _STOCK_FLAG)
_REGION_FLAGS = ("--region",)
_REGION_VARIABLES = ("EBS_PROVISIONER_CONTROLLER_REGION", "AWS_REGION", "AWS_DEFAULT_REGION")
_REFERENCE = re.compile(r"\$\(([^)]*)\)")

ConfigMaps = Mapping[str, DataObject]


def ours(workloads: Iterable[Workload], component: str) -> list[Workload]:
    """Workloads of this project: ``controller``, ``webhook`` or ``node``."""
    return [each for each in workloads if is_ours(each, component)]


def is_ours(obj: KubeObject, component: str) -> bool:
    """Whether a workload or a pod is a component of this project."""
    labels = obj.labels
    return labels.get(NAME_LABEL) == OUR_NAME and labels.get(COMPONENT_LABEL) == component


def stock_controllers(workloads: Iterable[Workload]) -> list[Workload]:
    """Controllers of aws-ebs-csi-driver, as its chart and the EKS add-on install them."""
    return [
        each
        for each in workloads
        if each.labels.get(NAME_LABEL) == STOCK_NAME or each.name == _STOCK_CONTROLLER
    ]


def controllers(workloads: Sequence[Workload]) -> list[Workload]:
    """All that may be a controller of EBS volumes, ours or stock, also one without our labels."""
    known = [*ours(workloads, "controller"), *stock_controllers(workloads)]
    return [
        each
        for each in workloads
        if each in known or each.name in _OUR_CONTROLLERS or any(map(_names_id, each.containers))
    ]


def at_work(workloads: Sequence[Workload], holders: Iterable[str]) -> Workload | None:
    """The controller whose pod holds a lease; else the first that is switched on, ours first.

    Args:
        workloads: all Deployments.
        holders: of the controller's leases: "ebs-provisioner_POD_…", or the pod (stock sidecars).
    """
    known = controllers(workloads)
    pods = [each.removeprefix(OUR_HOLDER) for each in holders]
    for each in sorted(workloads, key=lambda w: (w not in known, -len(w.name))):
        if any(pod.startswith(f"{each.name}-") for pod in pods):
            return each
    stock = stock_controllers(known)
    ordered = sorted(known, key=lambda w: (w.spec.replicas == 0, w in stock))
    return next(iter(ordered), None)


def _names_id(container: Container) -> bool:
    """Whether it sets what nothing else than such a controller has."""
    words = [word.partition("=")[0] for word in _words(container)]
    return _STOCK_FLAG in words or any(
        each.name == CLUSTER_ID_VARIABLE for each in container.env or ()
    )


def config_maps(controller: Workload) -> list[str]:
    """The ConfigMaps that its environment comes from, all in its namespace."""
    found = {
        each.config_map_ref.name
        for container in controller.containers
        for each in container.env_from or ()
        if each.config_map_ref is not None
    }
    for container in controller.containers:
        for variable in container.env or ():
            if variable.value_from is not None and variable.value_from.config_map_key_ref:
                found.add(variable.value_from.config_map_key_ref.name)
    return sorted(found)


def cluster_id_of(controller: Workload, found: ConfigMaps) -> str | None:
    """The cluster id that a controller runs with.

    Args:
        controller: ours or that of aws-ebs-csi-driver.
        found: those of its ``config_maps`` that could be read, by name.

    Returns:
        "" if it has none, None if it may come from something that could not be read.
    """
    return _option(controller, found, _ID_FLAGS, (CLUSTER_ID_VARIABLE,))


def region_of(controller: Workload, found: ConfigMaps) -> str | None:
    """The Region that a controller of ours is set to; as ``cluster_id_of``."""
    return _option(controller, found, _REGION_FLAGS, _REGION_VARIABLES)


def _option(
    controller: Workload, found: ConfigMaps, flags: Sequence[str], variables: Sequence[str]
) -> str | None:
    given = [_option_of(each, found, flags, variables) for each in controller.containers]
    known = next((each for each in given if each), "")
    return known or (None if None in given else "")


def _option_of(
    container: Container, found: ConfigMaps, flags: Sequence[str], variables: Sequence[str]
) -> str | None:
    """As click and Kubernetes have it: an argument, then ``env``, then the last of ``envFrom``."""
    argument = next(reversed([*_arguments(_words(container), flags)]), None)
    if argument is None:
        values = (_variable(container, each, found) for each in variables)
        return next((each for each in values if each != ""), "")
    for name in _REFERENCE.findall(argument):
        value = _variable(container, name, found)
        if not value:
            return None
        argument = argument.replace(f"$({name})", value)
    return argument


def _words(container: Container) -> list[str]:
    return [*(container.command or ()), *(container.args or ())]


def _arguments(words: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    for word, after in zip(words, [*words[1:], ""], strict=False):
        flag, equals, value = word.partition("=")
        given = value if equals else after
        if flag in flags and not given.startswith("-"):
            yield given


def _variable(container: Container, name: str, found: ConfigMaps) -> str | None:
    for each in reversed(container.env or ()):
        if each.name == name:
            return _value(each, found)
    is_sure = True
    for source in reversed(container.env_from or ()):
        if source.config_map_ref is None:
            is_sure = False  # a Secret, which nothing here reads
            continue
        options = found.get(source.config_map_ref.name)
        if options is None:
            is_sure = False
        elif name.startswith(source.prefix):
            value = (options.data or {}).get(name.removeprefix(source.prefix))
            if value is not None:
                return value if value or is_sure else None
    return "" if is_sure else None


def _value(variable: Variable, found: ConfigMaps) -> str | None:
    if variable.value_from is None:
        return None if _REFERENCE.search(variable.value) else variable.value
    key = variable.value_from.config_map_key_ref
    options = found.get(key.name) if key is not None else None
    return (options.data or {}).get(key.key, "") if key is not None and options else None
