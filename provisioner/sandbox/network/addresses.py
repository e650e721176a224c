"""The addresses of the network that real nodes and their pods are in.

They are the same in every sandbox: each has a network namespace of its own, so that nothing of it
meets the machine's network or that of another sandbox. Nodes have the addresses that the strict
EC2 gives to their instances, which are anywhere in 10.0.0.0/8 (moto 5.2, random_private_ip); so
all others are elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROUTER: Final = "172.31.0.1"
"""Where nodes send all that is not for themselves; pods reach programs of the machine there."""

SERVICES: Final = "172.20.0.0/16"
"""What the API server gives to Services; one of the two ranges that EKS uses."""

KUBERNETES: Final = "172.20.0.1"
"""The Service of the API server: the first address of the range, always."""

DNS: Final = "172.20.0.10"
"""The Service of the cluster's DNS server: the tenth address of the range, as on EKS."""

METADATA: Final = "169.254.169.254"
"""Where each instance finds its metadata service, and its pods too: on EC2 as here."""

PODS: Final = "100.64.0.0/16"
"""The addresses of all pods."""

_MOST_NODES: Final = 250


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of a node in the network; it keeps it when it is switched off and on again.

    Attributes:
        number: of the node, from 1.
        address: the node's own, which pods with ``hostNetwork: true`` share.
    """

    number: int
    address: str

    def __post_init__(self) -> None:
        if not 1 <= self.number <= _MOST_NODES:
            raise ValueError(f"a sandbox has at most {_MOST_NODES} real nodes")

    @property
    def pods(self) -> str:
        """The range of its pods' addresses."""
        return f"100.64.{self.number}.0/24"

    @property
    def link(self) -> str:
        """The name of the router's interface that leads to the node."""
        return f"node{self.number}"


def router() -> list[str]:
    """Return what ``ip -batch`` makes a router of an empty network namespace with."""
    return [
        "link set lo up",
        *(f"address add {address}/32 dev lo" for address in (ROUTER, KUBERNETES, DNS)),
    ]


def links(seat: Seat, pid: int) -> list[str]:
    """Return what connects a node to its router, to be run in the router's namespace.

    Args:
        seat: of the node.
        pid: of a process in the node's namespace.
    """
    services = f"route add {SERVICES} via {seat.address} dev {seat.link} src {ROUTER} onlink"
    return [
        f"link add {seat.link} type veth peer name eth0 netns {pid}",
        f"link set {seat.link} up",
        f"route add {seat.address}/32 dev {seat.link} src {ROUTER}",
        f"route add {seat.pods} via {seat.address} dev {seat.link} src {ROUTER} onlink",
        # The router has no service proxy of its own: the first node that is on serves it.
        f"{services} metric {seat.number}",
    ]


def interface(seat: Seat) -> list[str]:
    """Return what gives a node its address, to be run in its own namespace."""
    return [
        f"address add {seat.address}/32 dev eth0",
        f"address add {METADATA}/32 dev lo",
        "link set eth0 up",
        f"route add {ROUTER}/32 dev eth0 scope link",
        f"route add default via {ROUTER} dev eth0 src {seat.address}",
    ]
