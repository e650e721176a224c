"""What is known of single tests: what cannot be run or fails for reasons outside, and why tests skip.

A failure that is not named here, a named test that passes, and a skip without a reason fail the run.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """What a reader should know about the tests whose name or message matches."""

    pattern: str
    why: str

    def matches(self, text: str) -> bool:
        """Whether it is about this name or message."""
        return re.search(self.pattern, text) is not None


FAILURES: tuple[Reason, ...] = ()
"""Tests that fail for a reason outside of the product."""

NOT_RUN = (
    Reason(
        r"should provision storage with any volume data source",
        "it needs two images from registry.k8s.io, hello-populator and volume-data-source-validator "
        "(the latter with imagePullPolicy Always); the sandbox pulls nothing, and Go's module proxy "
        "does not serve their source (2026-11-23)",
    ),
    Reason(r"\[Feature:Windows\]|ntfs", "there is no node plugin for Windows"),
    Reason(
        r"should remount stale subpath bind mount",
        "it stops a container by crictl, which the sandbox's nodes do not have (Kubernetes 1.37)",
    ),
)
"""Tests that no machine of ours can run."""

SKIPS = (
    Reason(
        r'volume type "(PreprovisionedPV|InlineVolume)"',
        "the suite cannot make such volumes with a driver that it knows by a file only",
    ),
    Reason(r'volume type "CSIInlineVolume"', "the driver has no ephemeral inline volumes"),
    Reason(
        r'"DynamicPV" is not ephemeral|"GenericEphemeralVolume" is ephemeral',
        "the test is about the other kind of volume, ephemeral or persistent",
    ),
    Reason(
        r"immediate is not compatible with a multi-topology|immediate binding may cause",
        "the suite skips Immediate binding of ephemeral volumes for every driver with topology",
    ),
    Reason(
        r"support RWX", "file systems are never on several nodes; raw devices pass (`multi-attach`)"
    ),
    Reason(
        r"support ROX",
        "an EBS volume is always attached for writing; a ReadOnlyMany claim is refused",
    ),
    Reason(r"SELinuxMount", "CSIDriver's seLinuxMount is not set; the sandbox has no SELinux"),
    Reason(r"group snapshot", "there are no group snapshots yet"),
    Reason(r"snapshot metadata", "the changed blocks of snapshots are not served"),
    Reason(r"storage capacity", "EC2 does not say how much room a zone has"),
    Reason(
        r"does not support snapshots|should be covered by block volume|\"volumeLimits\" does not",
        "the suite runs this test for other kinds of volumes; here it has no meaning",
    ),
    Reason(
        r"[Bb]lock", "the test is about file systems, and the suite offers it for raw devices too"
    ),
)
"""Why tests skip themselves, by their messages; the first that matches counts."""


def why_skipped(message: str) -> str:
    """The reason in our words; "" for one that nobody has thought about yet."""
    return next((each.why for each in SKIPS if each.matches(message)), "")


def why_failing(name: str) -> str:
    """Why a test is known to fail; "" for one that is not."""
    return next((each.why for each in FAILURES if each.matches(name)), "")


def never_run() -> str:
    """A regular expression for the tests that cannot be run."""
    return "|".join(each.pattern for each in NOT_RUN)
