"""Which cluster and namespace a command is about, found as kubectl finds them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import list_kube_config_contexts

_USUAL = ".kube/config"


def path_of(given: str | None, environment: Mapping[str, str], home: Path) -> str | None:
    """The kubeconfig: given, KUBECONFIG, or that in the home folder; None in a pod without one."""
    told = given or environment.get("KUBECONFIG")
    if told:
        return told
    usual = home / _USUAL
    in_pod = "KUBERNETES_SERVICE_HOST" in environment
    return None if in_pod or not usual.exists() else str(usual)


def path_of_environment(given: str | None) -> str | None:
    """``path_of`` for this process."""
    return path_of(given, os.environ, Path.home())


def namespace_of(path: str | None, context: str | None) -> str:
    """The namespace of a context of this kubeconfig; "" if it names none or cannot be read.

    Several files are read in turn, as kubectl merges them: the first that has the context wins.
    """
    for each in filter(None, (path or "").split(os.pathsep)):
        try:
            contexts, active = list_kube_config_contexts(each)
        except (ConfigException, OSError, ValueError):
            continue
        chosen: Any = active
        if context is not None:
            chosen = next((one for one in contexts if one.get("name") == context), None)
        if chosen:
            return str((chosen.get("context") or {}).get("namespace") or "")
    return ""
