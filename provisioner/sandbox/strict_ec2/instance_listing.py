"""DescribeInstances and DescribeInstanceTypes: our ids, filters and pages, moto's documents.

moto pages by reservation, has few filters, answers a bad token with HTML, and does not page types.
Whether EC2 ever splits a reservation over two pages is not documented; here it does, so that
nobody relies on the contrary.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from provisioner.sandbox.strict_ec2 import motos
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error, instances_not_found
from provisioner.sandbox.strict_ec2.filters import TAG_FIELDS, Field, text_of
from provisioner.sandbox.strict_ec2.listing import Listing, list_things
from provisioner.sandbox.strict_ec2.params import Params, check_ids
from provisioner.sandbox.strict_ec2.world import World

_MOST_TYPES: Final = 100


def apply(world: World) -> None:
    """Patch moto's two responses; before its first request."""
    motos.EC2Response.describe_instances = _answering(world, _instances)
    motos.EC2Response.describe_instance_types = _answering(world, _types)


def _answering(world: World, describe: Callable[[Call], dict[str, Any]]) -> Callable[[Any], Any]:
    def respond(response: Any) -> Any:
        flat = {name: value[0] for name, value in response.querystring.items()}
        try:
            check_ids(flat)
            return motos.ActionResult(describe(Call(world, response.ec2_backend, Params(flat))))
        except Ec2Error as error:
            return error.xml(), {"status": error.status}

    return respond


def _instances(call: Call) -> dict[str, Any]:
    page, token = list_things(call, _INSTANCES)
    shown = {instance.id for instance in page}
    reservations = []
    for each in call.backend.all_reservations():
        part = copy.copy(each)
        part.instances = [instance for instance in each.instances if instance.id in shown]
        if part.instances:
            reservations.append(part)
    return {"Reservations": reservations, "NextToken": token}


def _all_instances(call: Call) -> dict[str, Any]:
    return {
        instance.id: instance
        for reservation in call.backend.all_reservations()
        for instance in reservation.instances
    }


def _instances_by_id(call: Call, instance_ids: list[str]) -> list[Any]:
    known = _all_instances(call)
    if absent := [each for each in instance_ids if each not in known]:
        raise instances_not_found(absent)
    return [known[each] for each in instance_ids]


def _addresses(instance: Any) -> list[str]:
    """All private addresses, of whatever interface, secondary ones too."""
    return [
        str(each["PrivateIpAddress"])
        for interface in instance.nics.values()
        for each in interface.private_ip_addresses
    ]


INSTANCE_FIELDS: Final[dict[str, Field]] = {
    **TAG_FIELDS,
    "availability-zone": lambda each: [each.placement.zone],
    "image-id": lambda each: [each.image_id],
    "instance-id": lambda each: [each.id],
    "instance-state-name": lambda each: [each.state],
    "instance-type": lambda each: [each.instance_type],
    "network-interface.addresses.private-ip-address": _addresses,
    "private-dns-name": lambda each: [each.private_dns_name],
    "private-ip-address": lambda each: [each.private_ip_address or ""],
    "subnet-id": lambda each: [each.subnet_id or ""],
    "vpc-id": lambda each: [each.vpc_id or ""],
}
_INSTANCES: Final = Listing(
    ids="InstanceId",
    id_set="instancesSet",
    fields=INSTANCE_FIELDS,
    by_id=_instances_by_id,
    find=lambda call, instance_id: _all_instances(call).get(instance_id),
    everything=lambda call: _all_instances(call).values(),
    key_of=lambda instance: str(instance.id),
)


def _types(call: Call) -> dict[str, Any]:
    page, token = list_things(call, _TYPES)
    return {"InstanceTypes": page, "NextToken": token}


def _type(call: Call, name: str) -> Any:
    like = call.world.settings.instance_types.get(name)
    if like is None:
        return motos.InstanceType(name) if name in motos.INSTANCE_TYPES else None
    found = motos.InstanceType(like)
    found["InstanceType"] = name
    return found


def _types_by_name(call: Call, names: list[str]) -> list[Any]:
    if len(names) > _MOST_TYPES:
        raise Ec2Error("InvalidParameterValue", f"A call may name up to {_MOST_TYPES} types")
    found = {name: _type(call, name) for name in names}
    if unknown := [name for name, each in found.items() if each is None]:
        text = f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
        raise Ec2Error("InvalidInstanceType", text)
    return list(found.values())


def _all_types(call: Call) -> Iterable[Any]:
    for name in {**motos.INSTANCE_TYPES, **call.world.settings.instance_types}:
        yield _type(call, name)


def _part(path: list[str]) -> Field:
    """What a filter of moto's own table of paths compares."""

    def field(each: Mapping[str, Any]) -> list[str]:
        found: list[Any] = [each]
        for step in path:
            parts = [part.get(step) for part in found if isinstance(part, Mapping)]
            lists = [part if isinstance(part, list) else [part] for part in parts]
            found = [part for some in lists for part in some if part is not None]
        return [text_of(part) for part in found]

    return field


TYPE_FIELDS: Final[dict[str, Field]] = {
    **{name: _part(path) for name, path in motos.InstanceType._filter_attributes.items()},  # noqa: SLF001 -- moto's table
    "ebs-info.attachment-limit-type": _part(["EbsInfo", "AttachmentLimitType"]),
    "instance-type": _part(["InstanceType"]),
}
_TYPES: Final = Listing(
    ids="InstanceType",
    id_set="instanceTypes",
    fields=TYPE_FIELDS,
    by_id=_types_by_name,
    find=_type,
    everything=_all_types,
    key_of=lambda each: str(each["InstanceType"]),
    max_page=_MOST_TYPES,
    default_page=_MOST_TYPES,
)
