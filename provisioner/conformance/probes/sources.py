"""Where rules are known from: the source, when it was read, and how well that shows it."""

from datetime import date
from typing import NamedTuple

from provisioner.conformance.probe import Probe
from provisioner.conformance.rule import Certainty, RestsOn, Rule

_21, _22 = date(2026, 11, 21), date(2026, 11, 22)


class Source(NamedTuple):
    """A source."""

    text: str
    read_on: date
    certainty: Certainty

    def at(self, place: str) -> "Source":
        """This source, at a place in it."""
        return self._replace(text=f"{self.text}, {place}")


def documented(text: str, read_on: date = _21) -> Source:
    """A page or model of AWS's own."""
    return Source(text, read_on, Certainty.DOCUMENTED)


def observed(text: str, read_on: date = _21) -> Source:
    """What others have seen."""
    return Source(text, read_on, Certainty.OBSERVED)


def assumed(why: str, read_on: date = _22) -> Source:
    """What nobody says."""
    return Source(why, read_on, Certainty.ASSUMED)


def rests(consequence: str, *files: str) -> RestsOn:
    """What is wrong if a rule is false, and where; files from ``provisioner/`` on."""
    return RestsOn(consequence, tuple(f"provisioner/{each}" for each in files))


def row(name: str, sentence: str, source: Source, rests_on: RestsOn, probe: Probe | str) -> Rule:
    """One row of the table."""
    return Rule(
        name=name,
        sentence=sentence,
        source=source.text,
        read_on=source.read_on,
        certainty=source.certainty,
        rests_on=rests_on,
        probe=probe,
    )


MODEL = documented("EC2 API model of botocore 1.44.5")
ERRORS = documented("EC2 API reference, Error codes")
IDEMPOTENCY = documented("EC2 developer guide, Ensuring idempotency")
THROTTLING = documented("EC2 developer guide, Request throttling")
MODIFYING = documented("EBS user guide, Modify a volume")
MULTI_ATTACH = documented("EBS user guide, Multi-Attach")
COPYING = documented("EBS user guide, Copy an Amazon EBS volume", _22)
INITIALIZING = documented("EBS user guide, Initialize Amazon EBS volumes", _22)
DEVICES = documented("EC2 user guide, Device names")
LIMITS = documented("EC2 user guide, Amazon EBS volume limits")
FAST_RESTORE = documented("EBS user guide, Fast snapshot restore", _22)
DRIVER = observed("aws-ebs-csi-driver v1.64")
