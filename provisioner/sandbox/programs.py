"""Which programs the sandbox needs, and the Go module that each is built from.

A new program is one row in ``KUBERNETES_PROGRAMS`` or ``OTHER_PROGRAMS``; who needs it names it in
``ensure_binaries(programs=…)``. Versions are pinned: a sandbox that changes by itself proves
nothing. A document, as the kinds of VolumeSnapshots are, is a row like a program: a set without it
is not whole, and it is made, linked and versioned in the same way.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from provisioner.sandbox.errors import SandboxError

RELEASES = {33: "v1.33.13", 34: "v1.34.4", 35: "v1.35.4", 36: "v1.36.3", 37: "v1.37.2"}
"""The supported minors of Kubernetes 1, and of each the release that is built if only it is named:
the newest that Go's module proxy served whole (2026-11-23; of 1.34.8 it lacks five modules)."""

DEFAULT_KUBERNETES = RELEASES[37]
"""What CI runs. What else was run is in docs/kubernetes-versions.md."""

OLDEST_KUBELET = 3
"""Minors that a kubelet and a kube-proxy may be older than the API server; none may be newer.
Source: Kubernetes version skew policy, read 2026-11-23."""

ETCD = "v3.6.16"
KWOK = "v0.8.0"
CSI_TEST = "v5.6.0"
COREDNS_VERSION = "v1.14.7"
HELM = "v4.3.1"
SNAPSHOTTER = "v8.7.0"
"""Of the snapshot-controller and of its kinds, which are a module of their own with one version."""

SNAPSHOT_CONTROLLER = "snapshot-controller"
SNAPSHOT_CRDS = "snapshot-crds.yaml"
"""VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotClass: three documents in one file."""

CONTROL_PLANE = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kwok",
    SNAPSHOT_CONTROLLER,
    SNAPSHOT_CRDS,
)
"""What ``sandbox up`` runs or applies."""

COREDNS = "coredns"
KUBE_PROXY = "kube-proxy"
OF_NODE = ("kubelet", KUBE_PROXY)
"""What may be of an older Kubernetes than the control plane."""

REAL_NODE = (*OF_NODE, COREDNS)
"""What ``sandbox up --real-node`` runs besides; containerd and runc are the machine's own."""

SANITY = ("csi-sanity",)
"""The Kubernetes project's own tests of a CSI driver; a test runs them."""

CHART = ("helm",)
"""What tests render and install the chart with."""

AGNHOST = "agnhost"
GINKGO = "ginkgo"
STORAGE_SUITE = "e2e-storage.test"
E2E = (AGNHOST, GINKGO, STORAGE_SUITE)
"""Kubernetes' end-to-end tests of a storage driver: what their pods run, what runs the tests in
several processes, and the tests. ``make conformance`` runs them."""

KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    KUBE_PROXY,
)
"""Programs whose version is Kubernetes' own."""

_PACKAGES = {name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_PROGRAMS} | {
    AGNHOST: "k8s.io/kubernetes/test/images/agnhost",
    # In the version that Kubernetes requires: the tests and what runs them have to agree.
    GINKGO: "github.com/onsi/ginkgo/v2/ginkgo",
}
"""The packages that are built from Kubernetes' module or from what it requires."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module at one version.

    Attributes:
        beside: (path, version) of modules that it replaces by folders of its own repository; a
            replacement is not inherited, so they are required as they were released with it.
        libraries: the release of Kubernetes whose versions of libraries it is built with; "" for
            its own. What a library is compiled to then serves all of them: with its own, each
            client of the API server has Kubernetes' client compiled once more, for minutes.
    """

    path: str
    version: str
    ldflags: str = ""
    beside: tuple[tuple[str, str], ...] = ()
    libraries: str = ""

    @property
    def whole_version(self) -> str:
        """Its version, with that of its libraries; a part of file names."""
        return f"{self.version}+{self.libraries}" if self.libraries else self.version

    @property
    def folder(self) -> str:
        """A file name that is unique to the module, its version and that of its libraries."""
        return f"{self.path.replace('/', '_')}@{self.whole_version}"


@dataclass(frozen=True, slots=True)
class Program:
    """One executable and the Go package it is built from.

    Attributes:
        documents: for what is no executable: the files of the module, by their paths in it, that
            it is put together from. There is no package then.
        test: for a test binary: the file of ours that is its only source. There is no package then.
        main: the same for another program.
    """

    name: str
    package: str
    module: Module
    documents: tuple[str, ...] = ()
    test: Path | None = None
    main: Path | None = None

    @property
    def version(self) -> str:
        """The module's with its libraries'; for a file of ours, also what makes this another."""
        source = self.test or self.main
        if source is None:
            return self.module.whole_version
        return f"{self.module.whole_version}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"

    @property
    def label(self) -> str:
        """What a person reads while it is built."""
        return f"{self.name} {self.module.version}"

    @property
    def is_plain(self) -> bool:
        """Whether it is a package of its module, so that others are built in the same run."""
        return not (self.documents or self.test or self.main)


_SNAPSHOTTER = "github.com/kubernetes-csi/external-snapshotter"
_SNAPSHOT_KINDS = Module(f"{_SNAPSHOTTER}/client/v8", SNAPSHOTTER)
_CSI_TEST = "github.com/kubernetes-csi/csi-test/v5"
_COREDNS = "github.com/coredns/coredns"

OTHER_PROGRAMS = (
    Program("etcd", "go.etcd.io/etcd/server/v3", Module("go.etcd.io/etcd/server/v3", ETCD)),
    Program("csi-sanity", f"{_CSI_TEST}/cmd/csi-sanity", Module(_CSI_TEST, CSI_TEST)),
    # Its own main package has all of its plugins, and with them the clients of three clouds.
    Program(
        COREDNS,
        "",
        Module(_COREDNS, COREDNS_VERSION, libraries=DEFAULT_KUBERNETES),
        main=Path(__file__).parent / "coredns" / "main.go",
    ),
    Program("helm", "helm.sh/helm/v4/cmd/helm", Module("helm.sh/helm/v4", HELM)),
    Program(
        "kwok",
        "sigs.k8s.io/kwok/cmd/kwok",
        Module("sigs.k8s.io/kwok", KWOK, libraries=DEFAULT_KUBERNETES),
    ),
    Program(
        SNAPSHOT_CONTROLLER,
        f"{_SNAPSHOTTER}/v8/cmd/{SNAPSHOT_CONTROLLER}",
        Module(
            f"{_SNAPSHOTTER}/v8",
            SNAPSHOTTER,
            beside=((_SNAPSHOT_KINDS.path, _SNAPSHOT_KINDS.version),),
            libraries=DEFAULT_KUBERNETES,
        ),
    ),
    Program(
        SNAPSHOT_CRDS,
        "",
        _SNAPSHOT_KINDS,
        documents=tuple(
            f"config/crd/snapshot.storage.k8s.io_volumesnapshot{kind}.yaml"
            for kind in ("classes", "contents", "s")
        ),
    ),
)


def release(text: str) -> str:
    """Return ``v1.35.4`` for itself and for ``1.35.4``; for ``1.35``, the release in ``RELEASES``.

    Raises:
        SandboxError: it is no release, or one of a minor that is not supported.
    """
    name = f"v{text.removeprefix('v')}"
    if short := re.fullmatch(r"v1\.(\d{1,4})", name):
        # Of a minor that is not in the table there is no release; the next line says so.
        name = RELEASES.get(int(short.group(1)), f"{name}.0")
    if minor_of(name, text) not in RELEASES:
        raise SandboxError(
            f"Kubernetes {text} is not supported: expected a release of 1.{min(RELEASES)} to "
            f"1.{max(RELEASES)}"
        )
    return name


def minor_of(version: str, written: str = "") -> int:
    """Return 36 for ``v1.36.3``.

    Args:
        version: of Kubernetes.
        written: how a person wrote it, for the message.

    Raises:
        SandboxError: it is not a release of Kubernetes 1.
    """
    # It becomes the name of a folder and an argument of go and of its linker: nothing but this.
    match = re.fullmatch(r"v1\.(\d{1,4})\.\d{1,4}(?:-(?:alpha|beta|rc)\.\d{1,4})?", version)
    if match is None:
        raise SandboxError(
            f"{(written or version)!r} is not a release of Kubernetes: expected one like 1.36 or "
            "1.36.3"
        )
    return int(match.group(1))


def demand_skew(kubernetes: str, kubelet: str) -> None:
    """Raise SandboxError for a kubelet that Kubernetes does not support with this API server."""
    behind = minor_of(kubernetes) - minor_of(kubelet)
    if not 0 <= behind <= OLDEST_KUBELET:
        raise SandboxError(
            f"a kubelet {kubelet} does not go with an API server {kubernetes}: it may be up to "
            f"{OLDEST_KUBELET} minor versions older, and not newer"
        )


def kubernetes_module(version: str) -> Module:
    """Return the module of Kubernetes itself; its programs report ``version`` as their own."""
    stamp = "-X k8s.io/component-base/version."
    ldflags = f"{stamp}gitVersion={version} {stamp}gitMajor=1 {stamp}gitMinor={minor_of(version)}"
    return Module("k8s.io/kubernetes", version, ldflags=ldflags)


def program(name: str, kubernetes_version: str) -> Program:
    """Return how ``name`` is built; KeyError for a name that is not in the table."""
    if name in _PACKAGES:
        return Program(name, _PACKAGES[name], kubernetes_module(kubernetes_version))
    if name == STORAGE_SUITE:
        source = Path(__file__).parent / "e2e" / "suite_test.go"
        return Program(name, "", kubernetes_module(kubernetes_version), test=source)
    return {each.name: each for each in OTHER_PROGRAMS}[name]


def staging_replaces(go_mod: str, kubernetes_version: str) -> tuple[tuple[str, str], ...]:
    """Return (module, version) for each requirement at exactly ``v0.0.0``.

    Inside Kubernetes' repository those are folders; outside they are published as v0.MINOR.PATCH.
    Other modules have none and get nothing.
    """
    staged = "v0" + kubernetes_version.removeprefix("v1")
    return tuple((path, staged) for path, version in _required(go_mod) if version == "v0.0.0")


def library_replaces(kubernetes_go_mod: str, module: Module) -> tuple[tuple[str, str], ...]:
    """Return (module, version) for each library of Kubernetes, in Kubernetes' own versions.

    For all that is required, so that none of it is compiled in two versions; not for what
    ``module`` itself is part of.
    """
    staged = "v0" + module.libraries.removeprefix("v1")
    ours = {module.path, *(path for path, _ in module.beside)}
    return tuple(
        (path, staged if version == "v0.0.0" else version)
        for path, version in _required(kubernetes_go_mod)
        if path not in ours
    )


def _required(go_mod: str) -> list[tuple[str, str]]:
    pattern = r"^\s*(?:require\s+)?([^\s/]+\.\S+) (v\d\S*)(?:\s*//.*)?$"
    return re.findall(pattern, go_mod, re.MULTILINE)
