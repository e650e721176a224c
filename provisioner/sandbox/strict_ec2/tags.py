"""CreateTags and DeleteTags, and the tag rules that CreateVolume shares with them."""

from typing import Any, Final

from provisioner.sandbox.strict_ec2 import motos
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error, dry_run, invalid, missing
from provisioner.sandbox.strict_ec2.params import check_id
from provisioner.sandbox.strict_ec2.records import find_instance, find_volume, touch
from provisioner.sandbox.strict_ec2.render import reply
from provisioner.sandbox.strict_ec2.snapshot_records import find_snapshot

MAX_TAGS: Final = 50
MAX_KEY_LENGTH: Final = 128
MAX_VALUE_LENGTH: Final = 256
MAX_RESOURCES: Final = 1000


def check_tags(tags: list[tuple[str, str | None]]) -> dict[str, str]:
    """Return tags as a mapping; limits count characters.

    Raises: ``InvalidParameterValue``, ``TagLimitExceeded``.
    """
    checked: dict[str, str] = {}
    for key, value in tags:
        if key.lower().startswith("aws:"):
            raise invalid("Tag keys starting with 'aws:' are reserved for internal use")
        if not 1 <= len(key) <= MAX_KEY_LENGTH:
            raise invalid(f"Tag key must be between 1 and {MAX_KEY_LENGTH} characters: '{key}'")
        if len(value or "") > MAX_VALUE_LENGTH:
            raise invalid(f"Tag value exceeds the maximum length of {MAX_VALUE_LENGTH} characters")
        if key in checked:
            raise invalid(f"Duplicate tag key '{key}' specified.")
        checked[key] = value or ""
    check_count(len(checked))
    return checked


def specified_tags(call: Call, kind: str) -> dict[str, str]:
    """Return the tags that a request gives to the new thing of a kind, ``volume`` for example.

    Raises: ``InvalidParameterValue`` for tags of another kind, and as ``check_tags``.
    """
    given = call.params.get("TagSpecification.1.ResourceType")
    if given is not None and given != kind:
        raise invalid(f"'{given}' is not a valid taggable resource type for this operation.")
    return check_tags(call.params.tags("TagSpecification.1.Tag"))


def check_count(number: int) -> None:
    """Refuse more tags than a resource can have.

    Raises: ``TagLimitExceeded``.
    """
    if number > MAX_TAGS:
        raise Ec2Error(
            "TagLimitExceeded", "The maximum number of Tags for a resource has been reached."
        )


def create_tags(call: Call) -> str:
    """Write tags on many resources: all or none of them."""
    resource_ids = _resources(call)
    tags = check_tags(call.params.tags())
    if not tags:
        raise missing("tag")
    for resource_id in resource_ids:
        there = call.backend.tags.get(resource_id) or {}
        check_count(len(there.keys() | tags.keys()))
    if call.params.boolean("DryRun"):
        raise dry_run()
    for resource_id in resource_ids:
        call.backend.tags[resource_id].update(tags)
        _changed(call, resource_id)
    return reply("CreateTags", "<return>true</return>")


def delete_tags(call: Call) -> str:
    """Remove tags; a value that is given must match, no tags at all means all of them."""
    resource_ids = _resources(call)
    tags = call.params.tags()
    if call.params.boolean("DryRun"):
        raise dry_run()
    for resource_id in resource_ids:
        there = call.backend.tags.get(resource_id) or {}
        if not tags:
            there.clear()
        for key, value in tags:
            if key in there and (value is None or value == there[key]):
                del there[key]
        _changed(call, resource_id)
    return reply("DeleteTags", "<return>true</return>")


def _resources(call: Call) -> list[str]:
    resource_ids = call.params.values("ResourceId")
    if not resource_ids:
        raise missing("resourceIdSet")
    if len(resource_ids) > MAX_RESOURCES:
        raise invalid(f"A call may name up to {MAX_RESOURCES} resources")
    for resource_id in resource_ids:
        _check_exists(call, resource_id)
    return resource_ids


def _check_exists(call: Call, resource_id: str) -> None:
    """Refuse what is not there; what has the form of no id is quoted in terratest #204."""
    kind = motos.ec2_utils.get_prefix(resource_id)
    if kind in ("vol", "i", "snap"):
        check_id(resource_id, f"{kind}-", "resourceIdSet")
    match kind:
        case "vol":
            find_volume(call.backend, resource_id, call.world.now_s())
        case "i":
            find_instance(call.backend, resource_id)
        case "snap":
            find_snapshot(call.backend, resource_id, call.world.now_s())
        case None:
            raise Ec2Error("InvalidID", f"The ID '{resource_id}' is not valid")
        case _:
            call.backend.do_resources_exist([resource_id])


def _changed(call: Call, resource_id: str) -> None:
    volume: Any = call.backend.volumes.get(resource_id)
    if volume is not None:
        touch(volume)
