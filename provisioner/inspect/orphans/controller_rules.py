"""Which cluster id the EBS controllers of a cluster run with, as their Deployments say it."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from provisioner.model.meta import KubeObject

# Ours; that of aws-ebs-csi-driver, as its manifests and its chart name it.
NAMES = ("ebs-provisioner", "ebs-csi-controller")
# Ours; and aws-ebs-csi-driver 1.64 cmd/options/controller.go (read 2026-11-21).
_FLAGS = ("--cluster-id", "--k8s-tag-cluster-id")


class _Container(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    command: list[str] | None = None
    args: list[str] | None = None


class _PodSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    containers: list[_Container] | None = None


class _Template(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _Spec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    template: _Template = _Template()


class Deployment(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A Deployment, cut down to what its containers are started with."""

    spec: _Spec = _Spec()


def cluster_ids(deployments: Iterable[Deployment]) -> Mapping[str, str]:
    """The cluster ids that controllers are started with, each with the Deployment that says so."""
    return {
        found: f"Deployment {each.key} runs with it"
        for each in deployments
        for container in each.spec.template.spec.containers or ()
        for found in _ids_in([*(container.command or ()), *(container.args or ())])
    }


def _ids_in(words: Sequence[str]) -> Iterable[str]:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        found = value if equals else after
        if flag in _FLAGS and found and not found.startswith("-"):
            yield found
