"""The reason in what events and statuses say: ours, kubelet's, the stock driver's."""

from __future__ import annotations

import pytest

from provisioner.inspect.explain.gathering.told import of_event, reason_in
from provisioner.inspect.reading.kind_rules import Event, EventSeries
from provisioner.model.errors import Reason
from tests.inspect.explain.views import LONG_AGO, NOW

KUBELET = (
    'MountVolume.MountDevice failed for volume "pvc-1" : rpc error: code = '
    "FailedPrecondition desc = VolumeNotBlank: volume vol-1 has data"
)
# With the words of the AWS SDK for Go.
STOCK = (
    'failed to provision volume with StorageClass "gp3": rpc error: code = Internal desc = '
    'Could not create volume "pvc-1": could not create volume in EC2: operation error EC2: '
    "CreateVolume, https response error StatusCode: 403, RequestID: 1, api error "
    "UnauthorizedOperation: You are not authorized to perform this operation."
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("QuotaExceeded: CreateVolume: EC2 answered MaxIOPSLimitExceeded", Reason.QUOTA_EXCEEDED),
        (
            "(combined from similar events): ZoneOutOfCapacity: no room",
            Reason.ZONE_OUT_OF_CAPACITY,
        ),
        (
            'resize volume "pvc-1" by resizer "ebs.csi.aws.com" failed: PermissionDenied: …',
            Reason.PERMISSION_DENIED,
        ),
        (
            KUBELET,
            Reason.NOT_BLANK,
        ),
        # attachError has the sentence alone.
        (
            "AttachVolume vol-1 on i-1: EC2 answered IncorrectState: instance i-1 is not 'running'",
            Reason.INSTANCE_STATE,
        ),
        ("EC2 has no volume vol-0123456789abcdef0", Reason.VOLUME_NOT_FOUND),
        # The stock driver's.
        (
            STOCK,
            Reason.PERMISSION_DENIED,
        ),
        (
            "could not create volume in EC2: IdempotentParameterMismatch: Parameters on this …",
            Reason.TOKEN_MISMATCH,
        ),
        (
            "timed out waiting for volume to create: InvalidVolume.NotFound: The volume 'vol-…'",
            Reason.VOLUME_NOT_FOUND,
        ),
        ("Could not create: InsufficientVolumeCapacity in us-east-1a", Reason.ZONE_OUT_OF_CAPACITY),
        ("get credentials: failed to refresh: no EC2 IMDS role found", Reason.CREDENTIALS_INVALID),
        ('storageclass.storage.k8s.io "fast" not found', Reason.CLASS_NOT_FOUND),
        ("MountVolume.SetUp failed: no such secret", None),
        ("", None),
    ],
)
def test_the_reason_in_a_text(text: str, reason: Reason | None):
    assert reason_in(text) is reason


def test_an_event_of_the_newer_api_has_its_time_in_the_series():
    event = Event(
        type="Warning", event_time=LONG_AGO, series=EventSeries(count=7, last_observed_time=NOW)
    )
    assert of_event("pod a/b", event).at == NOW
    assert event.times == 7
