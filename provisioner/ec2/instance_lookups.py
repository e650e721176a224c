"""Running instances of this cluster by their private names and addresses, many a call.

Only those with the cluster's tag: in another cluster of the account, or another network, there may
be an instance of the same name and address.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from provisioner.ec2.batches import FILTER_VALUES, PAGE, ask_about, one_of, pages
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.pace import Pace
from provisioner.model.errors import Ec2Error
from provisioner.model.tags import cluster_key
from provisioner.model.volume import Instance

WINDOW_S = 0.5
RUNNING = "running"
_OWNED = ("owned", "shared")
# EC2 counts the values of all filters of a call together: one state, two values of the tag.
VALUES_PER_CALL = FILTER_VALUES - 1 - len(_OWNED)


class InstanceLookUps:
    """Look-ups at the common pace; an answer is never older than the question."""

    def __init__(self, calls: Ec2Calls, cluster_id: str, pace: Pace | None = None) -> None:
        self._calls = calls
        self._tag = one_of(f"tag:{cluster_key(cluster_id)}", _OWNED)
        by_name = partial(self._fetch, "private-dns-name", _names)
        # It finds secondary addresses too, and private-ip-address none of further interfaces; no
        # filter is for the primary ones of all. What is not asked for is left out of the answer.
        by_address = partial(
            self._fetch, "network-interface.addresses.private-ip-address", _addresses
        )
        self._names = Coalescer[list[Instance]](
            by_name, window_s=WINDOW_S, fresh_for_s=0.0, pace=pace
        )
        self._addresses = Coalescer[list[Instance]](
            by_address, window_s=WINDOW_S, fresh_for_s=0.0, pace=pace
        )

    @property
    def region(self) -> str:
        """The Region in which all that is found runs."""
        return self._calls.region

    async def named(self, name: str) -> list[Instance]:
        """Running instances whose private DNS name is this one, in lower case.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._names.get(name)

    async def addressed(self, address: str) -> list[Instance]:
        """Running instances of which an interface has this as its primary private IPv4 address.

        A secondary one says nothing: pods have them (AWS's VPC CNI), and a kubelet may run in one.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._addresses.get(address)

    async def close(self) -> None:
        """Stop looking."""
        await self._names.close()
        await self._addresses.close()

    async def _fetch(
        self, name: str, shown: Callable[[Instance], Iterable[str]], values: list[str]
    ) -> Mapping[str, list[Instance] | Ec2Error]:
        found: dict[str, dict[str, Instance]] = {value: {} for value in values}
        state = one_of("instance-state-name", [RUNNING])

        async def ask(some: list[str]) -> None:
            params = {"Filters": [one_of(name, some), state, self._tag], "MaxResults": PAGE}
            async for page in pages(self._ask, params):
                for instance in page["Instances"]:
                    for value in shown(instance):
                        if value in found:
                            found[value][instance.instance_id] = instance

        refused = await ask_about(values, VALUES_PER_CALL, ask)
        return {value: list(each.values()) for value, each in found.items()} | refused

    async def _ask(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._calls.call("DescribeInstances", params)


def _names(instance: Instance) -> tuple[str, ...]:
    return (instance.private_dns_name.lower(),)


def _addresses(instance: Instance) -> tuple[str, ...]:
    return instance.private_addresses
