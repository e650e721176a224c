"""AWS credentials that have expired, from EC2's answer to what the claim's user reads, and back."""

from __future__ import annotations

import pytest

from provisioner.ec2.volumes import Volumes
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.names import VOLUME_NAME
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.builders import UID, a_persistent_volume
from tests.controller.provisioning.test_flow import CLAIM, PINNED, World

EXPIRED = [
    ("ExpiredToken", "The security token included in the request is expired", "IAM role"),
    ("RequestExpired", "Request has expired.", "clock of this machine"),
]


@pytest.mark.parametrize(("code", "text", "advice"), EXPIRED, ids=["token", "request"])
async def test_expired_credentials_are_told_and_the_next_try_makes_the_volume(
    strict_ec2: StrictEc2, volumes: Volumes, code: str, text: str, advice: str
):
    world = World(CLAIM)
    world.provisioner.creations._volumes = volumes
    world.kube.answers = [PINNED, a_persistent_volume()]
    refusal = {"code": code, "message": text, "http_status": 400}
    strict_ec2.control(faults=[{"action": "CreateVolume", "do": "error", "n": 1, **refusal}])

    with pytest.raises(Ec2Error) as caught:
        await world.provisioner.reconcile(UID)

    assert caught.value.reason is Reason.CREDENTIALS_INVALID
    assert caught.value.retry_after_s == 30  # they are renewed behind our back
    [told] = world.events.told
    assert code in told
    assert advice in told

    await world.provisioner.reconcile(UID)

    named = {VOLUME_NAME: CLAIM.persistent_volume_name}
    assert len(await volumes.find(tags=named)) == 1
