"""What EC2 has begun with a volume and not ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from provisioner.inspect.explain.view_rules import View
from provisioner.model.volume import AttachmentState, InstanceAttachment
from tests.builders import INSTANCE, OTHER_INSTANCE
from tests.inspect.explain.views import (
    LONG_AGO,
    NODE,
    attachment_of,
    chains,
    claim_view,
    ebs,
    pod_of,
    view,
    volume_of,
)


def starting(state: AttachmentState, on: str, **changes: Any) -> View:
    there = replace(ebs(), attachments=(InstanceAttachment(on, "/dev/xvdba", state),))
    nodes_of = {INSTANCE: NODE, OTHER_INSTANCE: "node-2"}
    volume = volume_of(ebs=there, nodes_of=nodes_of, **changes)
    return view("pod", pod=pod_of(phase="Pending"), claims=(claim_view("Bound", volume=volume),))


def test_a_volume_that_ec2_attaches_for_an_hour():
    asked = attachment_of(created_at=LONG_AGO)
    (chain,) = chains(starting(AttachmentState.ATTACHING, INSTANCE, attachments=(asked,)))
    first = chain.links[0]
    assert (str(first.cause), chain.waits) == ("AttachmentPendingInEc2", False)
    assert "2026-11-23T19:00:00Z" in first.sentence
    assert first.proof.seen == f"{INSTANCE}: attaching"
    assert first.command == f"aws ec2 describe-instance-status --instance-ids {INSTANCE}"


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (AttachmentState.BUSY, "kubectl debug node/node-2"),
        (AttachmentState.DETACHING, "aws ec2 describe-instance-status"),
    ],
)
def test_a_volume_that_does_not_leave_the_other_instance(state: AttachmentState, command: str):
    leaving = attachment_of("node-2", attached=True, deleting=True)
    meta = structs.replace(leaving.metadata, deletion_timestamp="2026-11-23T19:00:00Z")
    leaving = structs.replace(leaving, metadata=meta)
    (chain,) = chains(starting(state, OTHER_INSTANCE, attachments=(leaving,)))
    assert [str(each.cause) for each in chain.links[:2]] == [
        "AttachmentPendingInEc2",
        "AttachmentStuck",
    ]
    assert str(state) in chain.links[0].proof.seen
    assert chain.links[0].command.startswith(command)
