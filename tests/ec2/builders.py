"""Builders that show only what matters to a test."""

from provisioner.model.volume import AttachmentState, CreateRequest, InstanceAttachment, Volume
from provisioner.model.volume import VolumeState as State

ZONE = "us-east-1a"


def a_request(name: str = "one", *, size_gib: int = 4, **tags: str) -> CreateRequest:
    return CreateRequest(
        client_token=name,
        zone=ZONE,
        size_gib=size_gib,
        volume_type="gp3",
        tags=tuple({"Name": name, **tags}.items()),
    )


def a_volume(
    volume_id: str = "vol-1", state: State = State.AVAILABLE, *, on: str | None = None
) -> Volume:
    attachments = (
        () if on is None else (InstanceAttachment(on, "/dev/xvdaa", AttachmentState.ATTACHED),)
    )
    return Volume(volume_id, state, ZONE, 4, attachments=attachments)
