import hashlib

import msgspec

from provisioner.model.attachment import Attachment, attachment_metadata, attachment_name
from tests.builders import DRIVER, VOLUME, an_attachment


def test_it_is_read_as_the_api_server_sends_it():
    found = msgspec.json.decode(
        b'{"spec": {"attacher": "x", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},'
        b' "status": {"attached": true, "attachmentMetadata": null,'
        b'  "attachError": {"message": "full", "time": "2026-11-21T10:00:00Z", "errorCode": 8}}}',
        type=Attachment,
    )

    assert found.attached
    assert found.spec.source.persistent_volume_name == "pv"
    assert found.status is not None
    assert found.status.attach_error is not None


def test_an_inline_volume_is_read():
    found = msgspec.json.decode(
        b'{"spec": {"source": {"inlineVolumeSpec": {"awsElasticBlockStore": {"volumeID": "vol-1"}}}}}',
        type=Attachment,
    )

    inline = found.spec.source.inline_volume_spec
    assert inline is not None
    assert inline.aws_elastic_block_store is not None
    assert inline.aws_elastic_block_store.volume_id == "vol-1"


def test_one_without_a_status_is_not_attached():
    assert not Attachment().attached
    assert not an_attachment().attached
    assert an_attachment(attached=True).attached


def test_its_name_is_the_one_of_the_volume_controller():  # race 10
    digest = hashlib.sha256(b"vol-0123456789abcdef0ebs.csi.aws.comnode-1").hexdigest()

    assert attachment_name(VOLUME, DRIVER, "node-1") == f"csi-{digest}"


def test_only_a_volume_that_others_may_have_too_is_told_to_be_one():
    alone = {
        "devicePath": "/dev/xvdaa",
        "ebs-provisioner.io/instance-id": "i-0a1b",
        "ebs-provisioner.io/made-from": "blank",
    }

    assert attachment_metadata("/dev/xvdaa", "i-0a1b", "blank", multi_attach=False) == alone
    assert attachment_metadata("/dev/xvdaa", "i-0a1b", "blank", multi_attach=True) == alone | {
        "ebs-provisioner.io/multi-attach": "true"
    }
