"""CreateRequest as boto3 takes it: of CreateVolume, and of CopyVolumes."""

from typing import Any

from provisioner.model.volume import CreateRequest


def create_params(request: CreateRequest) -> dict[str, Any]:
    """For CreateVolume: an empty volume, or one made of a snapshot."""
    params = _of_both(request) | {"AvailabilityZone": request.zone}
    if request.initialization_rate_mibps is not None:
        params["VolumeInitializationRate"] = request.initialization_rate_mibps
    if request.outpost_arn is not None:
        params["OutpostArn"] = request.outpost_arn
    if request.snapshot_id is not None:
        params["SnapshotId"] = request.snapshot_id
    return params


def copy_params(request: CreateRequest) -> dict[str, Any]:
    """For CopyVolumes: the zone, and the Outpost if any, are the source's."""
    return _of_both(request) | {"SourceVolumeId": request.source_volume_id}


def _of_both(request: CreateRequest) -> dict[str, Any]:
    params: dict[str, Any] = {
        "ClientToken": request.client_token,
        "Size": request.size_gib,
        "VolumeType": request.volume_type,
    }
    if request.tags:
        tags = [{"Key": key, "Value": value} for key, value in request.tags]
        params["TagSpecifications"] = [{"ResourceType": "volume", "Tags": tags}]
    if request.iops is not None:
        params["Iops"] = request.iops
    if request.throughput_mibps is not None:
        params["Throughput"] = request.throughput_mibps
    if request.encrypted:
        params["Encrypted"] = True
    if request.kms_key_id is not None:
        params["KmsKeyId"] = request.kms_key_id
    if request.multi_attach:
        params["MultiAttachEnabled"] = True
    return params
