"""An account with other people's volumes, a few simple rules, and a terminal that remembers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from provisioner.conformance import account
from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import (
    Confirmed,
    Finding,
    Probe,
    RefusedError,
    Refuted,
    Usage,
    VolumeUse,
)
from provisioner.conformance.rule import Certainty, RestsOn, Rule
from provisioner.conformance.sweep import Patience
from provisioner.model.names import CONFORMANCE_RUN
from tests.sandbox import lab as strict

QUICK = Patience(quiet_s=0.0, unanswered_s=0.0, give_up_s=30.0)
ONE_VOLUME = Usage(volumes=(VolumeUse(),))


async def makes_a_volume(lab: Lab) -> Finding:
    volume = await lab.volume()
    return Confirmed(f"{volume} became available")


async def repeats_a_token(lab: Lab) -> Finding:
    asked = {"AvailabilityZone": lab.zone, "VolumeType": "gp3", "Size": 1, "ClientToken": "again"}
    first = await lab.call("create_volume", **asked)
    second = await lab.call("create_volume", **asked)
    if first["VolumeId"] == second["VolumeId"]:
        return Confirmed("one volume came of two calls")
    return Refuted("two volumes came of two calls")


async def takes_a_snapshot(lab: Lab) -> Finding:
    snapshot = await lab.snapshot(await lab.volume())
    return Confirmed(f"{snapshot} was completed")


async def attaches(lab: Lab) -> Finding:
    volume = await lab.volume()
    await lab.attached(volume)
    return Confirmed(f"{volume} was attached, and is left so")


async def reads(lab: Lab) -> Finding:
    code = await lab.code_of("describe_volumes", VolumeIds=[lab.missing_id("volume")])
    if code == "InvalidVolume.NotFound":
        return Confirmed(f"EC2 answered {code}")
    return Refuted(f"EC2 answered {code or 'well'}")


async def is_wrong(lab: Lab) -> Finding:
    try:
        await lab.call("delete_volume", VolumeId=lab.missing_id("volume"))
    except RefusedError as refused:
        return Refuted(f"EC2 answered {refused}")
    return Confirmed("EC2 deletes what is not there")


def rule(name: str, probe: Probe | str) -> Rule:
    return Rule(
        name=name,
        sentence=f"EC2 keeps the rule {name}",
        source="nowhere | it is of a test",
        read_on=date(2026, 11, 23),
        certainty=Certainty.ASSUMED,
        rests_on=RestsOn("Nothing would be lost.", ("provisioner/ec2/volumes.py",)),
        probe=probe,
    )


MAKES = rule("makes-a-volume", Probe(makes_a_volume, ("CreateVolume",), ONE_VOLUME))
REPEATS = rule("repeats-a-token", Probe(repeats_a_token, ("CreateVolume",), ONE_VOLUME))
SNAPSHOT = rule(
    "takes-a-snapshot",
    Probe(takes_a_snapshot, ("CreateSnapshot",), replace(ONE_VOLUME, snapshots_gib=1)),
)
ATTACHES = rule(
    "attaches",
    Probe(attaches, ("AttachVolume",), replace(ONE_VOLUME, needs_instance=True), alone=True),
)
READS = rule("reads", Probe(reads, ("DescribeVolumes",)))
WRONG = rule("is-wrong", Probe(is_wrong, ("DeleteVolume",)))
EVERY = (MAKES, REPEATS, SNAPSHOT, ATTACHES, READS)


@dataclass(slots=True)
class Listener:
    """A terminal."""

    answer: bool = True
    lines: list[str] = field(default_factory=list)
    findings: dict[str, Finding] = field(default_factory=dict)

    @property
    def terminal(self) -> account.Terminal:
        return account.Terminal(
            say=self.lines.append,
            agrees=lambda: self.answer,
            tell=lambda rule, finding: self.findings.__setitem__(rule.name, finding),
        )

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass(slots=True)
class Account:
    """One account in the strict EC2."""

    ec2: Any
    endpoint: str
    folder: Path
    instance: str = ""
    strangers: dict[str, Any] = field(default_factory=dict)

    def order(self, rules: Sequence[Rule] = EVERY, **changes: Any) -> account.Order:
        asked = account.Order(
            rules=rules,
            folder=self.folder,
            endpoint=self.endpoint,
            region=strict.REGION,
            instances=[self.instance],
            patience=QUICK,
        )
        return replace(asked, **changes)

    def settle_strangers(self) -> None:
        """Volumes and a snapshot of other people: free, attached, and with tags like ours."""
        hand = strict.Lab(self.ec2, lambda **_: None)
        self.instance = hand.instance()
        free, attached, tagged = hand.volume(), hand.volume(), hand.volume()
        hand.attach(attached, self.instance, "/dev/sdf")
        near = [{"Key": f"{CONFORMANCE_RUN}s", "Value": "20261123t090000-aaaaaa"}]
        self.ec2.create_tags(Resources=[tagged], Tags=near)
        hand.snapshot(free)
        self.strangers = self.everything()

    def everything(self) -> dict[str, Any]:
        """What is there: the state of each, its tags and where it is attached."""
        volumes = self.ec2.describe_volumes()["Volumes"]
        snapshots = self.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
        there = {
            each["VolumeId"]: (
                each["State"],
                str(each.get("Tags")),
                [(a["InstanceId"], a["Device"], a["State"]) for a in each["Attachments"]],
            )
            for each in volumes
        }
        return there | {s["SnapshotId"]: (s["State"], str(s.get("Tags"))) for s in snapshots}

    def made(self) -> set[str]:
        """What is there now and is not of strangers, who have lost nothing."""
        there = self.everything()
        assert {each: there.get(each) for each in self.strangers} == self.strangers
        return there.keys() - self.strangers.keys()
