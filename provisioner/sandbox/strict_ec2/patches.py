"""moto's classes, patched in place; before the first request, once in a process.

In place because moto finds its classes by module: subclasses do not work (``InstanceTrackerMeta``
and ``BackendDict`` look at the module's name). Pinned to moto 5.2.5; the contract tests are the
canary.
"""

from typing import Any

from provisioner.sandbox.strict_ec2 import instance_listing, motos, records
from provisioner.sandbox.strict_ec2.actions import ACTIONS, carry_out
from provisioner.sandbox.strict_ec2.records import record_of, status_of
from provisioner.sandbox.strict_ec2.snapshot_records import snapshot_record_of
from provisioner.sandbox.strict_ec2.world import World


def apply(world: World) -> None:
    """Patch moto; every EC2 backend of the process then obeys ``world``."""
    _volumes()
    _backend(world)
    _instances()
    instance_listing.apply(world)
    _snapshots()
    _tags()
    _responses(world)


def _set_by_rules(thing: Any, value: Any) -> None:
    """Ignore what moto's constructors set: rules keep these attributes elsewhere."""


def _volumes() -> None:

    def first(volume: Any) -> Any:
        return next(iter(record_of(volume).attachments.values()), None)

    motos.Volume.status = property(status_of)
    motos.Volume.attachment = property(first, _set_by_rules)
    motos.Volume.attachments = property(lambda volume: list(record_of(volume).attachments.values()))


def _backend(world: World) -> None:
    """Root volumes at launch, termination: moto's own use of volumes."""

    def attach(
        backend: Any,
        volume_id: str,
        instance_id: str,
        device_path: str,
        delete_on_termination: bool = False,  # noqa: FBT001, FBT002 (moto's signature)
    ) -> Any:
        volume, instance = backend.get_volume(volume_id), backend.get_instance(instance_id)
        return records.put_attachment(
            volume,
            instance,
            device_path,
            state="attached",
            delete_on_termination=delete_on_termination,
        )

    def detach(backend: Any, volume_id: str, instance_id: str, device_path: str) -> Any:
        del device_path
        attachment = records.record_of(backend.get_volume(volume_id)).attachments[instance_id]
        records.drop_attachment(attachment)
        world.disks.record("detached", volume_id, instance_id=instance_id)
        return attachment

    def delete(backend: Any, volume_id: str) -> Any:
        volume = backend.get_volume(volume_id)
        records.remove_volume(volume)
        world.disks.record("deleted", volume_id)
        return volume

    def describe(backend: Any, volume_ids: Any = None, filters: Any = None) -> list[Any]:
        assert not filters, "only DescribeVolumes filters, and that is ours"
        return [backend.get_volume(each) for each in volume_ids or backend.volumes]

    motos.EBSBackend.attach_volume = attach
    motos.EBSBackend.detach_volume = detach
    motos.EBSBackend.delete_volume = delete
    motos.EBSBackend.describe_volumes = describe


def _instances() -> None:
    """Block devices hold the attachment's own state, and are shown as the plain facts they are."""

    def mappings(instance: Any) -> list[dict[str, Any]]:
        return [
            {
                "DeviceName": device,
                "Ebs": {
                    "AttachTime": block.attach_time,
                    "DeleteOnTermination": block.delete_on_termination,
                    "Status": block.status,
                    "VolumeId": block.volume_id,
                },
            }
            for device, block in instance.block_device_mapping.items()
        ]

    motos.Instance.block_device_mappings = property(mappings)


def _snapshots() -> None:
    """State and size are those of our record; a volume's size changes, a snapshot's does not."""
    motos.Snapshot.status = property(lambda each: snapshot_record_of(each).state, _set_by_rules)
    motos.Snapshot.volume_size = property(lambda each: snapshot_record_of(each).size_gib)


def _tags() -> None:
    """Reading the tags of one resource costs one look-up, not a scan of all tags."""
    utils = motos.ec2_utils

    def get_tags(resource: Any) -> list[dict[str, str]]:
        kind = utils.EC2_PREFIX_TO_RESOURCE.get(utils.get_prefix(resource.id), "")
        return [
            {"resource_id": resource.id, "key": key, "value": value, "resource_type": kind}
            for key, value in (resource.ec2_backend.tags.get(resource.id) or {}).items()
        ]

    motos.TaggedEC2Resource.get_tags = get_tags


def _responses(world: World) -> None:
    """Lead moto's way in, taken while IAM is enforced, to the same rules."""

    def responder(action: str) -> Any:
        def respond(response: Any) -> tuple[str, dict[str, Any]]:
            flat = {name: value[0] for name, value in response.querystring.items()}
            status, body = carry_out(world, response.current_account, response.region, action, flat)
            return body, {"status": status}

        return respond

    for action in ACTIONS:
        setattr(
            motos.EC2Response, motos.core_utils.camelcase_to_underscores(action), responder(action)
        )
