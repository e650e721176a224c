"""The DNS server of a cluster with real nodes: one CoreDNS, in the network of the nodes.

It is a process beside the nodes, not a pod, so that it is there before the first pod is. Pods find
it where they find it in other clusters: at the Service ``kube-dns`` in ``kube-system``.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

from provisioner.sandbox import control_plane, workdir
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.network.addresses import DNS, ROUTER
from provisioner.sandbox.network.network import Network
from provisioner.sandbox.programs import COREDNS
from provisioner.sandbox.real_node.configs import CLUSTER_DOMAIN

_READY_TIMEOUT_S: Final = 60.0
_READY: Final = (ROUTER, 8181)
_SERVICES: Final = "/api/v1/namespaces/kube-system/services"
_SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
_SERVICE: Final = "kube-dns"
_PORTS: Final = [
    {"name": "dns", "port": 53, "protocol": "UDP"},
    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
]

# Two blocks, because the plugin "template" is asked before "kubernetes" in any one of them.
_COREFILE: Final = """\
{domain} in-addr.arpa ip6.arpa {{
    bind {addresses}
    errors
    ready {ready}
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        kubeconfig "{kubeconfig}"
        pods insecure
    }}
}}

# Nothing outside of the cluster can be reached: a client is to know at once.
. {{
    bind {addresses}
    errors
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def corefile(kubeconfig: Path) -> str:
    """Return what ``coredns -conf`` takes.

    Args:
        kubeconfig: what it reaches the API server by.
    """
    return _COREFILE.format(
        domain=CLUSTER_DOMAIN,
        addresses=f"{ROUTER} {DNS}",
        ready=":".join(map(str, _READY)),
        kubeconfig=kubeconfig,
    )


def service() -> dict[str, Any]:
    """Return the Service by which pods and people know it."""
    return {
        "metadata": {
            "name": _SERVICE,
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
        },
        "spec": {"clusterIP": DNS, "ports": _PORTS},
    }


def endpoints() -> dict[str, Any]:
    """Return the EndpointSlice of the Service, which selects no pods."""
    return {
        "metadata": {"name": _SERVICE, "labels": {"kubernetes.io/service-name": _SERVICE}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ROUTER]}],
        "ports": _PORTS,
    }


async def start(plane: ControlPlane) -> None:
    """Run it as a part of the control plane's crew, and wait until it knows the cluster.

    Raises:
        SandboxError: it cannot be started, or ends, or is not ready within a minute.
    """
    network = plane.network
    assert network is not None, "this control plane has no real nodes"
    await plane.api.create(_SERVICES, service())
    await plane.api.create(_SLICES, endpoints())
    config = plane.folder / workdir.STATE / "Corefile"
    config.write_text(corefile(plane.kubeconfig_of_dns()))
    argv = network.command(str(plane.binaries / COREDNS), "-conf", str(config))
    await plane.crew.start(COREDNS, argv)

    async def is_ready() -> bool:
        return await _is_ready(network)

    what = "the start of the cluster's DNS server"
    await plane.crew.unless_failed(control_plane.until(is_ready), _READY_TIMEOUT_S, what)


async def _is_ready(network: Network) -> bool:
    with contextlib.suppress(OSError):
        reader, writer = await network.connected(_READY)
        try:
            writer.write(b"GET /ready HTTP/1.0\r\n\r\n")
            return (await reader.readline()).split()[1:2] == [b"200"]
        finally:
            writer.close()
    return False
