from datetime import UTC, datetime

import pytest

from provisioner.ec2 import wire
from provisioner.model.volume import (
    AttachmentState,
    Instance,
    InstanceAttachment,
    Volume,
    VolumeState,
)

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
SPACE = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
VOLUME = """
  <volumeId>vol-1</volumeId><size>30</size><snapshotId/>
  <availabilityZone>us-east-1a</availabilityZone><status>{state}</status>
  <createTime>2026-11-21T09:00:00.123Z</createTime>
  <attachmentSet><item>
    <volumeId>vol-1</volumeId><instanceId>i-1</instanceId><device>/dev/xvdaa</device>
    <status>{attachment}</status><attachTime>2026-11-21T09:00:01.000Z</attachTime>
    <deleteOnTermination>false</deleteOnTermination>
  </item></attachmentSet>
  <tagSet>
    <item><key>Name</key><value>one &amp; only</value></item>
    <item><key>empty</key><value/></item>
  </tagSet>
  <volumeType>gp3</volumeType><iops>3000</iops><throughput>125</throughput>
  <encrypted>true</encrypted><kmsKeyId>arn:key</kmsKeyId>
  <outpostArn>arn:aws:outposts:r:1:outpost/op-1</outpostArn>
  <multiAttachEnabled>true</multiAttachEnabled>
"""
EXPECTED = Volume(
    volume_id="vol-1",
    state=VolumeState.IN_USE,
    zone="us-east-1a",
    size_gib=30,
    volume_type="gp3",
    iops=3000,
    throughput_mibps=125,
    encrypted=True,
    kms_key_id="arn:key",
    created_at=datetime(2026, 11, 21, 9, 0, 0, 123000, tzinfo=UTC),
    outpost_arn="arn:aws:outposts:r:1:outpost/op-1",
    multi_attach=True,
    tags={"Name": "one & only", "empty": ""},
    attachments=(
        InstanceAttachment(
            "i-1",
            "/dev/xvdaa",
            AttachmentState.ATTACHED,
        ),
    ),
)


def answer(name: str, inner: str, space: str = SPACE) -> bytes:
    return f"{HEAD}<{name} {space}><requestId>r</requestId>{inner}</{name}>".encode()


def volumes(inner: str) -> bytes:
    return answer("DescribeVolumesResponse", f"<volumeSet>{inner}</volumeSet>")


def test_reads_a_volume_with_all_that_we_use() -> None:
    text = VOLUME.format(state="in-use", attachment="attached")

    assert wire.read(volumes(f"<item>{text}</item>"))["Volumes"] == [EXPECTED]


def test_reads_the_answer_of_create_volume() -> None:
    text = VOLUME.format(state="in-use", attachment="attached")

    assert wire.read(answer("CreateVolumeResponse", text)) == {"Volume": EXPECTED}


def test_reads_a_volume_with_nothing_but_the_necessary() -> None:
    text = "<item><volumeId>vol-1</volumeId><status>creating</status><size>4</size></item>"

    (volume,) = wire.read(volumes(text))["Volumes"]

    assert volume == Volume("vol-1", VolumeState.CREATING, "", 4, volume_type="")


def test_reads_the_token_of_the_next_page() -> None:
    body = answer("DescribeVolumesResponse", "<volumeSet/><nextToken>more</nextToken>")

    assert wire.read(body) == {"Volumes": [], "NextToken": "more"}


def test_an_empty_token_ends_the_pages() -> None:
    body = answer("DescribeVolumesResponse", "<volumeSet/><nextToken/>")

    assert wire.read(body) == {"Volumes": [], "NextToken": None}


def test_a_state_that_nobody_knows_yet_is_one_to_wait_in() -> None:
    text = VOLUME.format(state="recycling", attachment="levitating")

    (volume,) = wire.read(volumes(f"<item>{text}</item>"))["Volumes"]

    assert volume.state is VolumeState.CREATING
    assert volume.attachments[0].state is AttachmentState.BUSY


def test_reads_an_instance_and_its_devices() -> None:
    body = answer(
        "DescribeInstancesResponse",
        """<reservationSet><item><instancesSet><item>
          <instanceId>i-1</instanceId><instanceType>m5.large</instanceType>
          <instanceState><code>16</code><name>running</name></instanceState>
          <placement><availabilityZone>us-east-1a</availabilityZone></placement>
          <blockDeviceMapping>
            <item><deviceName>/dev/xvda</deviceName><ebs><volumeId>vol-1</volumeId></ebs></item>
            <item><deviceName>/dev/xvdb</deviceName></item>
          </blockDeviceMapping>
          <privateDnsName>ip-10-0-0-1.ec2.internal</privateDnsName>
          <networkInterfaceSet>
            <item><privateIpAddressesSet>
              <item><privateIpAddress>10.0.0.1</privateIpAddress><primary>true</primary></item>
              <item><privateIpAddress>10.0.0.2</privateIpAddress><primary>false</primary></item>
            </privateIpAddressesSet></item>
            <item><privateIpAddressesSet>
              <item><privateIpAddress>10.0.1.2</privateIpAddress><primary>false</primary></item>
              <item><primary>true</primary><privateIpAddress>10.0.1.1</privateIpAddress></item>
            </privateIpAddressesSet></item>
          </networkInterfaceSet>
        </item></instancesSet></item></reservationSet>""",
    )

    assert wire.read(body)["Instances"] == [
        Instance(
            "i-1",
            "us-east-1a",
            "running",
            "m5.large",
            {"/dev/xvda": "vol-1", "/dev/xvdb": ""},
            "ip-10-0-0-1.ec2.internal",
            ("10.0.0.1", "10.0.1.1"),
        )
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!doctype html><p>busy",
        b"<html><body>busy</body></html>",
        volumes("<item><status>available</status><size>4</size></item>"),
        volumes("<item><volumeId>vol-1</volumeId><status>x</status><size>big</size></item>"),
        volumes("")[:-20],
    ],
)
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"EC2|literal"):
        wire.read(body)
