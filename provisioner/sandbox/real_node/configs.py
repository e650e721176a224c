"""The files that a node's containerd, kubelet and kube-proxy are configured by.

containerd 1.6, configuration version 2; kubelet.config.k8s.io/v1beta1;
kubeproxy.config.k8s.io/v1alpha1. They find their folders at the usual places of the node's own
namespace.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from provisioner.sandbox.network.addresses import DNS, PODS
from provisioner.sandbox.real_node.image import PAUSE
from provisioner.sandbox.real_node.layers import SNAPSHOTTERS

SOCKET: Final = "/run/containerd/containerd.sock"

CLUSTER_DOMAIN: Final = "cluster.local"

_CNI: Final = "/var/lib/cni/net.d"

_CONTAINERD: Final = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
# What is not used costs time at the start, and some of it looks beyond this node.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.restart",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.{unused}",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# A container of the sandbox's own may not be allowed to lower it.
restrict_oom_score_adj = true
disable_tcp_service = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{cni}"
"""


def write_containerd(path: Path, plugins: str, snapshotter: str) -> Path:
    """Write what ``containerd --config`` takes.

    Args:
        path: of the file.
        plugins: the folder of the CNI plugins.
        snapshotter: one of ``layers.SNAPSHOTTERS``.
    """
    [unused] = set(SNAPSHOTTERS) - {snapshotter}
    settings = {"plugins": plugins, "snapshotter": snapshotter, "unused": unused}
    path.write_text(_CONTAINERD.format(socket=SOCKET, pause=PAUSE, cni=_CNI, **settings))
    return path


def write_cni(var_lib: Path, pods: str) -> None:
    """Write the network of a node's pods: each has a link to its node, and an address.

    Pods with ``hostNetwork: true`` need none of it.

    Args:
        var_lib: what the node has as /var/lib.
        pods: the range of their addresses.
    """
    folder = var_lib / "cni" / "net.d"
    folder.mkdir(parents=True, exist_ok=True)
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        # Gone when the node is switched off, as its pods' addresses are.
        "dataDir": "/run/cni/addresses",
    }
    plugins = [{"type": "ptp", "ipMasq": False, "ipam": addresses}]
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}
    (folder / "10-pods.conflist").write_text(json.dumps(network))


_KUBELET: Final = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "healthzPort": 0,
    "containerRuntimeEndpoint": f"unix://{SOCKET}",
    "cgroupDriver": "cgroupfs",
    # Version 1 still is what some machines have; by default a kubelet of 1.35 refuses it.
    "failCgroupV1": False,
    "failSwapOn": False,
    # How soon the controllers see that a volume is no longer in use.
    "nodeStatusUpdateFrequency": "1s",
    # A Node in which nothing has changed is written this rarely. By default it would be written
    # every second, too, and everybody who watches Nodes would be sent it (reference of
    # kubelet.config.k8s.io/v1beta1, read 2026-11-23).
    "nodeStatusReportFrequency": "5m",
    # How soon it looks again at a pod that runs: whether its volume has grown, for one.
    "syncFrequency": "5s",
    # How often it measures how full volumes are; by default once a minute.
    "volumeStatsAggPeriod": "5s",
    # The disk and memory are the whole machine's, and no pod is to go for others.
    "evictionHard": {"memory.available": "0%"},
    "imageGCHighThresholdPercent": 100,
    "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    # It would make chains in the machine's own firewall.
    "makeIPTablesUtilChains": False,
    # For pods; "Default" as dnsPolicy means no server, as the machine's cannot be reached.
    "clusterDNS": [DNS],
    "clusterDomain": CLUSTER_DOMAIN,
    "resolvConf": "",
    "serializeImagePulls": False,
    # A container that ends runs again after a second, not after minutes.
    "featureGates": {"KubeletCrashLoopBackOffMax": True},
    "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    "logging": {"flushFrequency": "1s"},
}


def kubelet(*, cgroup: str, authority: Path, certificate: Path, key: Path) -> dict[str, Any]:
    """Return a KubeletConfiguration.

    Args:
        cgroup: the group that its pods' are made in.
        authority: who signs the client certificate of the API server, the only client.
        certificate: the server's own.
        key: of that.
    """
    # Who has a certificate of ours may do all, and nobody else, for example a pod, anything.
    only_certificates = {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": False},
        "x509": {"clientCAFile": str(authority)},
    }
    return _KUBELET | {
        "cgroupRoot": f"/{cgroup}",
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "authentication": only_certificates,
        "authorization": {"mode": "AlwaysAllow"},
    }


def kube_proxy(name: str, kubeconfig: Path) -> dict[str, Any]:
    """Return a KubeProxyConfiguration: rules of nftables in the node's network namespace.

    Args:
        name: of the node.
        kubeconfig: what it reaches the API server by.
    """
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": name,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        # What comes from elsewhere, such as the router, gets the node's address on its way to a
        # pod: otherwise the answer would pass the node by.
        "clusterCIDR": PODS,
        "detectLocalMode": "ClusterCIDR",
        "nodePortAddresses": ["primary"],
        "healthzBindAddress": "0.0.0.0:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # These settings are the whole machine's: they stay as they are.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
