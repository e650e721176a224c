"""What we claim to Kubernetes' storage tests, beside what aws-ebs-csi-driver claims, and why.

A test of what is not claimed skips itself. The stock driver's claims are those of its
``tests/e2e-kubernetes/manifests.yaml`` at commit 429e202 (2026-08-19, read 2026-11-23).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

DRIVER = "ebs.csi.aws.com"
MANIFEST, STORAGE_CLASS, ATTRIBUTES_CLASS = "driver.yaml", "class.yaml", "attributes-class.yaml"


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that a driver may claim.

    Attributes:
        name: of the capability, or of the field that has a value.
        ours: whether we claim it.
        stock: whether aws-ebs-csi-driver does.
        why: what there is to say about it; required where the two differ or nobody claims it.
    """

    name: str
    ours: bool
    stock: bool
    why: str = ""


_BOTH = (
    *("persistence", "fsGroup", "block", "exec", "snapshotDataSource", "pvcDataSource"),
    *("multipods", "controllerExpansion", "nodeExpansion", "volumeLimits", "topology"),
)
CAPABILITIES = (
    *(Claim(name, ours=True, stock=True) for name in _BOTH),
    *(
        Claim(
            name,
            ours=True,
            stock=True,
            why="the suite takes it as claimed with controllerExpansion",
        )
        for name in ("offlineExpansion", "onlineExpansion")
    ),
    Claim("readWriteOncePod", ours=True, stock=False, why="one pod alone uses the volume"),
    Claim(
        "multiplePVsSameID",
        ours=True,
        stock=False,
        why="two PersistentVolumes of one volume work on one node",
    ),
    Claim(
        "RWX",
        ours=False,
        stock=False,
        why="only raw devices of io1 and io2 can be on several nodes: claimed with the class "
        "`multi-attach`, and not for file systems",
    ),
    Claim(
        "capReadOnlyMany",
        ours=False,
        stock=False,
        why="an EBS volume is always attached for writing; a ReadOnlyMany claim is refused",
    ),
    Claim(
        "capacity",
        ours=False,
        stock=False,
        why="EC2 does not say how much room a zone has, so there are no CSIStorageCapacity objects",
    ),
    Claim(
        "groupSnapshot",
        ours=False,
        stock=False,
        why="there are no group snapshots yet",
    ),
    Claim(
        "snapshotMetadata",
        ours=False,
        stock=False,
        why="the changed blocks of snapshots (EBS direct APIs) are not served",
    ),
    Claim(
        "seLinuxMount",
        ours=False,
        stock=False,
        why="CSIDriver's seLinuxMount is not set, as it is not in the stock driver by default; the "
        "sandbox has no SELinux",
    ),
    Claim(
        "volumeMountGroup",
        ours=False,
        stock=False,
        why="kubelet changes the group of the files itself (fsGroup)",
    ),
    Claim(
        "singleNodeVolume", ours=False, stock=False, why="a volume can move to any node of its zone"
    ),
    Claim(
        "FSResizeFromSourceNotSupported",
        ours=False,
        stock=False,
        why="the opposite of a capability: file systems from snapshots and clones do grow",
    ),
)
OPTIONS = (
    Claim("StressTestOptions", ours=True, stock=False, why="6 pods, 3 restarts"),
    Claim(
        "VolumeSnapshotStressTestOptions", ours=True, stock=False, why="4 pods, 3 snapshots each"
    ),
    Claim("VolumeModifyStressTestOptions", ours=True, stock=False, why="6 volumes"),
    Claim(
        "PerformanceTestOptions",
        ours=True,
        stock=False,
        why="100 volumes, at most 60 s each on average, at least 1 a second",
    ),
    Claim(
        "SupportedFsType",
        ours=True,
        stock=True,
        why="ext3, ext4, xfs; stock also claims ntfs, for Windows nodes, which we have no plugin for",
    ),
    Claim("SupportedMountOption", ours=True, stock=True, why="dirsync"),
    Claim(
        "InlineVolumes", ours=False, stock=False, why="the driver has no ephemeral inline volumes"
    ),
)
NEEDS: Mapping[str, str] = {
    "capacity": "capacity",
    "fsgroupchangepolicy": "fsGroup",
    "pvc-deletion-performance": "PerformanceTestOptions",
    "read-write-once-pod": "readWriteOncePod",
    "seLinuxMount": "seLinuxMount",
    "snapshotmetadata": "snapshotMetadata",
    "snapshottable": "snapshotDataSource",
    "snapshottable-stress": "VolumeSnapshotStressTestOptions",
    "topology": "topology",
    "volume-expand": "controllerExpansion",
    "volume-lifecycle-performance": "PerformanceTestOptions",
    "volume-modify-stress": "VolumeModifyStressTestOptions",
    "volume-stress": "StressTestOptions",
    "volumegroupsnapshotclass": "groupSnapshot",
    "volumegroupsnapshottable": "groupSnapshot",
    "volumegroupsnapshottable-stress": "groupSnapshot",
    "volumeLimits": "volumeLimits",
}
"""The claim that a feature's tests need as a whole; all others run for every driver."""

_WORDS = {True: "yes", False: "no"}
STRESS: Mapping[str, Any] = {
    "StressTestOptions": {"NumPods": 6, "NumRestarts": 3},
    "VolumeSnapshotStressTestOptions": {"NumPods": 4, "NumSnapshots": 3},
    "VolumeModifyStressTestOptions": {"NumPods": 6},
    "PerformanceTestOptions": {
        "ProvisioningOptions": {
            "VolumeSize": "1Gi",
            "Count": 100,
            # Go's time.Duration: nanoseconds; volumes a second.
            "ExpectedMetrics": {"AvgLatency": 60 * 10**9, "Throughput": 1.0},
        }
    },
}
TIMEOUTS: Mapping[str, str] = {
    # Half of the suite's own, and still many times what anything takes here.
    "PodStart": "3m",
    "PodDelete": "3m",
    "ClaimProvision": "2m",
    "DataSourceProvision": "2m",
    "PVDelete": "3m",
    "SnapshotCreate": "2m",
    "SnapshotDelete": "2m",
}


class Variation(Enum):
    """A class that the suite is run with; the claims are the same but where it says so."""

    PLAIN = "plain"
    XFS = "xfs"
    IMMEDIATE = "immediate"
    MULTI_ATTACH = "multi-attach"


def storage_class(variation: Variation) -> dict[str, Any]:
    """The StorageClass: the stock driver's, but for what makes the variation."""
    parameters = {"encrypted": "true"}
    if variation is Variation.XFS:
        parameters["csi.storage.k8s.io/fstype"] = "xfs"
    if variation is Variation.MULTI_ATTACH:
        parameters |= {"type": "io2", "iops": "200"}
    immediate = variation is Variation.IMMEDIATE
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": DRIVER},
        "provisioner": DRIVER,
        "volumeBindingMode": "Immediate" if immediate else "WaitForFirstConsumer",
        "parameters": parameters,
    }


def attributes_class() -> dict[str, Any]:
    """The VolumeAttributesClass that volumes are changed to: the stock driver's."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttributesClass",
        "metadata": {"name": "gp2-class"},
        "driverName": DRIVER,
        "parameters": {"type": "gp2"},
    }


def driver(variation: Variation, folder: str) -> dict[str, Any]:
    """The driver's definition for ``--storage.testdriver``; its classes are files in ``folder``."""
    capabilities = {claim.name: True for claim in CAPABILITIES if claim.ours}
    smallest = "1Gi"
    if variation is Variation.MULTI_ATTACH:
        capabilities["RWX"] = True
        smallest = "4Gi"  # io2's own
    return {
        "ShortName": "ebs",
        "StorageClass": {"FromFile": f"{folder}/{STORAGE_CLASS}"},
        "VolumeAttributesClass": {"FromFile": f"{folder}/{ATTRIBUTES_CLASS}"},
        "SnapshotClass": {"FromName": True},
        "Timeouts": dict(TIMEOUTS),
        "DriverInfo": {
            "Name": DRIVER,
            "SupportedSizeRange": {"Min": smallest, "Max": "16Ti"},
            "SupportedFsType": {"xfs": {}, "ext4": {}, "ext3": {}},
            "SupportedMountOption": {"dirsync": {}},
            "TopologyKeys": ["topology.ebs.csi.aws.com/zone"],
            "Capabilities": capabilities,
            **STRESS,
        },
    }


def stock_claims(feature: str) -> bool:
    """Whether the tests of a feature are also run for the stock driver by its own manifest."""
    stock = {each.name: each.stock for each in (*CAPABILITIES, *OPTIONS)}
    return feature not in NEEDS or stock[NEEDS[feature]]


def markdown() -> str:
    """All claims as a table."""
    rows = ["| claim | ours | stock | |", "|---|---|---|---|"]
    rows += [
        f"| {each.name} | {_WORDS[each.ours]} | {_WORDS[each.stock]} | {each.why} |"
        for each in (*CAPABILITIES, *OPTIONS)
    ]
    return "\n".join(rows)
