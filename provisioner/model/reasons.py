"""What each reason means, and what to do about it: docs/reference/events.md and ``explain``.

A sentence may have `code` in backticks, as in Markdown.
"""

from typing import NamedTuple

from provisioner.model.errors import Reason


class Advice(NamedTuple):
    """``meaning`` and ``remedy``: sentences for somebody who has never seen the code."""

    meaning: str
    remedy: str


ADVICE: dict[Reason, Advice] = {
    Reason.ZONE_OUT_OF_CAPACITY: Advice(
        "EC2 has no room left in the zone for volumes of this type.",
        "Nothing, if the class allows another zone and, with WaitForFirstConsumer, the pod can "
        "run there: the volume is made there. Otherwise choose another zone or type, or wait.",
    ),
    Reason.TYPE_NOT_IN_ZONE: Advice(
        "The zone does not offer this volume type.",
        "Nothing, if the class allows another zone and, with WaitForFirstConsumer, the pod can "
        "run there: the volume is made there. Otherwise choose another type.",
    ),
    Reason.ZONE_NOT_FOUND: Advice(
        "EC2 knows no such zone in this region, or the account may not use it.",
        "Correct `allowedTopologies` of the class, or the zone label of the node.",
    ),
    Reason.ZONE_NOT_ANSWERING: Advice(
        "EC2 has not answered for minutes whether it makes a volume in the zone, and made none.",
        "Nothing, if the class allows another zone and, with WaitForFirstConsumer, the pod can "
        "run there: the volume is made there. Otherwise look at the AWS Health Dashboard.",
    ),
    Reason.QUOTA_EXCEEDED: Advice(
        "A quota of the account is used up.",
        "Raise the quota that the message names in Service Quotas, or delete what is not needed.",
    ),
    Reason.IOPS_CAPPED: Advice(
        "The volume was made with fewer IOPS than its class asks for: more than EC2 gives in this "
        "region, or for its size.",
        "Nothing, if they suffice. Otherwise a larger claim or another type, as the message says.",
    ),
    Reason.IOPS_RAISED: Advice(
        "The VolumeAttributesClass asks for fewer IOPS than the minimum of the volume type: the "
        "volume has the minimum.",
        "Nothing.",
    ),
    Reason.PERMISSION_DENIED: Advice(
        "The role may not do this in AWS.",
        "Allow the action that the message names; `manifests/iam/` has the whole policy.",
    ),
    Reason.CREDENTIALS_INVALID: Advice(
        "There are no AWS credentials, or AWS does not accept them.",
        "Check the role of the ServiceAccount or the instance, and the clock.",
    ),
    Reason.KEY_UNUSABLE: Advice(
        "EC2 cannot use the KMS key of a volume: the key does not exist, is disabled or is to be "
        "deleted, or the controller's role may not use it.",
        "The key is `kmsKeyId` of the class; without it, that of the source snapshot, or else the "
        "account's default one (`aws ec2 get-ebs-default-kms-key-id`). The role needs the rights "
        "of `manifests/iam/kms-policy.json`, and the key's policy has to allow them. `kubectl ebs "
        "doctor --as-controller` tries them.",
    ),
    Reason.INVALID_REQUEST: Advice(
        "The request is impossible: EC2 refuses it, or an object or an option contradicts itself.",
        "Correct what the message names.",
    ),
    Reason.TOKEN_MISMATCH: Advice(
        "EC2 has seen this client token with another request.",
        "Nothing with this controller: the volume is searched for, and otherwise requested under "
        "the next token. With aws-ebs-csi-driver it is most often a volume of an earlier try that "
        "EC2 took back: check the class's KMS key and the rights to it.",
    ),
    Reason.VOLUME_NOT_FOUND: Advice(
        "The volume does not exist.",
        "For a new volume: check the rights to its KMS key, without which EC2 takes the volume "
        "back. For an old one: somebody has deleted it; restore a snapshot.",
    ),
    Reason.INSTANCE_NOT_FOUND: Advice(
        "The node's instance does not exist.",
        "Delete the Node object, unless the cloud controller does.",
    ),
    Reason.VOLUME_IN_USE: Advice(
        "The volume is attached elsewhere, or another object names it.",
        "Free it where the message says.",
    ),
    Reason.VOLUME_STATE: Advice(
        "The volume is in a state in which this is not possible.",
        "Nothing at first, it is retried. A volume in state error has to be replaced.",
    ),
    Reason.INSTANCE_STATE: Advice(
        "The instance is not running, so nothing can be attached to it.",
        "Start it, or let the pod run elsewhere.",
    ),
    Reason.NOT_ATTACHED: Advice(
        "The volume is not attached to this instance.",
        "Nothing: it is retried.",
    ),
    Reason.DEVICE_IN_USE: Advice(
        "The device name is taken on the instance.",
        "Nothing: another one is tried.",
    ),
    Reason.INSTANCE_FULL: Advice(
        "The instance takes no more volumes.",
        "Use another node. If the scheduler sends too many pods there, check the limit in CSINode.",
    ),
    Reason.ZONE_MISMATCH: Advice(
        "The volume and the instance are in different zones.",
        "Correct the PersistentVolume's `nodeAffinity`. That takes creating claim and "
        "PersistentVolume again: set the reclaim policy to Retain first, or the volume is deleted "
        "with them. The webhook fills `nodeAffinity` in.",
    ),
    Reason.NOT_YOUR_VOLUME: Advice(
        "A pod names a volume by its id (`awsElasticBlockStore`) that backs a claim of another "
        "namespace, or no pod on the node names it.",
        "Use a claim in the pod's own namespace; `manifests/no-inline-volumes` forbids such pods.",
    ),
    Reason.NEVER_MODIFIED: Advice(
        "The volume was never modified.",
        "Nothing.",
    ),
    Reason.MODIFICATION_RUNNING: Advice(
        "The volume's last modification is not completed. EC2 accepts the next one only then.",
        "Nothing: it is sent once that one is completed. Optimizing can take hours, for large "
        "volumes more than a day.",
    ),
    Reason.MODIFICATION_LIMIT: Advice(
        "The volume's modifications of a rolling 24 hours are used up.",
        "Nothing: it is sent when EC2 allows it; the message says when, if that is known.",
    ),
    Reason.SNAPSHOT_NOT_FOUND: Advice(
        "The EBS snapshot does not exist.",
        "Somebody has deleted it; restore another one.",
    ),
    Reason.SNAPSHOT_STATE: Advice(
        "The EBS snapshot is in a state in which this is not possible.",
        "Nothing at first, it is retried. A snapshot in state error has to be taken again.",
    ),
    Reason.SNAPSHOT_IN_USE: Advice(
        "An AMI uses the EBS snapshot, so it is not deleted; or another VolumeSnapshotContent "
        "names it, so it stays until the last one goes; or its content was deleted without its "
        "VolumeSnapshot, so it stays for other clusters that may use it.",
        "Deregister the AMI that the message names, or do what else EC2 says; the snapshot is then "
        "deleted within seven hours. For another content, do nothing. For other clusters: if none "
        "uses the snapshot, delete it in EC2.",
    ),
    Reason.SNAPSHOT_LOCKED: Advice(
        "The EBS snapshot is locked, so it cannot be deleted.",
        "Nothing, if that is intended: it is deleted within seven hours of the end of the lock. In "
        "governance mode, users with permission can unlock it.",
    ),
    Reason.SNAPSHOT_RATE: Advice(
        "EC2 takes one snapshot of a volume in 15 seconds, and a limited number at a time.",
        "Nothing: it is retried.",
    ),
    Reason.COPY_RATE: Advice(
        "EC2 makes one copy of a volume at a time, and a limited number in a region at a time.",
        "Nothing: it is retried.",
    ),
    Reason.INITIALIZATION_RATE: Advice(
        "The volumes that are being initialized in the region use up the rate that "
        "`volumeInitializationRate` can request.",
        "Nothing: it is retried. To wait less, request a lower rate in the class.",
    ),
    Reason.THROTTLED: Advice(
        "There are too many calls for the account's quota, or for the API server.",
        "Nothing: it is retried. If it lasts: find who else calls EC2 from this account, or have "
        "the quota raised and set `--ec2-rate`.",
    ),
    Reason.REPLY_LOST: Advice(
        "No usable answer came: the request may have been carried out, or not.",
        "Nothing: that is found out before anything is retried.",
    ),
    Reason.UNREACHABLE: Advice(
        "There is no connection to EC2 or to the API server.",
        "Nothing at first, it is retried. If it stays: network, endpoint, proxy, certificates.",
    ),
    Reason.TIMED_OUT: Advice(
        "No answer came in time.",
        "Nothing at first, it is retried. If it stays: as for `Unreachable`.",
    ),
    Reason.OBJECT_NOT_FOUND: Advice(
        "An object that is needed does not exist.",
        "Create what the message names.",
    ),
    Reason.OBJECT_EXISTS: Advice(
        "An object of this name exists already.",
        "Find out whose it is, if the message says so.",
    ),
    Reason.CONFLICT: Advice(
        "Somebody has changed the object in the meantime, or it belongs to another one.",
        "Nothing at first, it is retried. If it stays: what the message names.",
    ),
    Reason.FORBIDDEN: Advice(
        "RBAC does not allow this to the ServiceAccount.",
        "Apply `manifests/rbac.yaml` again; the message names the verb and the resource.",
    ),
    Reason.UNAUTHORIZED: Advice(
        "The API server does not accept the token.",
        "Check the ServiceAccount or the kubeconfig.",
    ),
    Reason.REJECTED: Advice(
        "The API server, or an admission webhook, refuses the object.",
        "What the message says; often a policy of the cluster.",
    ),
    Reason.EXPIRED: Advice(
        "A watch was behind for too long.",
        "Nothing: everything is listed again.",
    ),
    Reason.UNREADABLE: Advice(
        "An answer does not have the form that Kubernetes documents.",
        "Correct the object that the message names, or delete it; a log line names the field. "
        "Until then no volume is deleted, or taken over from the controller before.",
    ),
    Reason.NOT_LEADING: Advice(
        "This replica has lost its leases.",
        "Nothing: the one that has them continues.",
    ),
    Reason.WRONG_CLOUD: Advice(
        "EC2 is asked in another region or account than the cluster's, so what it does not know "
        "may well exist.",
        "Correct the region, or the controller's role, as the message says; it continues by "
        "itself.",
    ),
    Reason.CERTIFICATE_UNUSABLE: Advice(
        "The webhook's Secret holds no usable certificate and key.",
        "Correct it, or delete it and apply `manifests/webhook/state.yaml` for a new one.",
    ),
    Reason.INVALID_CLAIM: Advice(
        "The claim asks for what its class or EBS cannot give.",
        "Create the claim again, with what the message says.",
    ),
    Reason.INVALID_CLASS: Advice(
        "The class has a parameter, or a pair of them, that can never work.",
        "`ebs-provisioner class check NAME` shows the whole class. Delete it and create it again: "
        "parameters cannot be changed.",
    ),
    Reason.CLASS_NOT_FOUND: Advice(
        "The claim's StorageClass does not exist.",
        "Create it, or create the claim again with another one.",
    ),
    Reason.NO_ZONE: Advice(
        "There is no zone in which the volume could be made.",
        "There must be a node with a zone label on which the node plugin is registered, in a zone "
        "that the class allows.",
    ),
    Reason.NOT_SUPPORTED: Advice(
        "This is not covered, or cannot be done here.",
        "What the message says.",
    ),
    Reason.DEVICE_NOT_FOUND: Advice(
        "EC2 says that the volume is attached, but the node has no device of it.",
        "Nothing at first: kubelet asks again. If it stays: check the node's kernel log, and "
        "restart the instance if its NVMe driver hangs.",
    ),
    Reason.WRONG_DEVICE: Advice(
        "The device under the volume's name is another one, its serial cannot be read, or (on "
        "Xen) its name was given on another instance.",
        "Nothing was written. Check the links and the device that the message names; a stale link "
        "goes with `udevadm trigger`. A name of another instance goes with its VolumeAttachment, "
        "if you delete that.",
    ),
    Reason.DEVICE_BUSY: Advice(
        "Something on the node other than this plugin uses the device.",
        "Free it: it is mounted by hand, used by LVM, RAID or multipath, or a container has an "
        "open file of it that was mounted with other settings (`fsType`, `ro`) before.",
    ),
    Reason.DEVICE_READ_ONLY: Advice(
        "The device does not accept writes, and the pod wants to write.",
        "Check the node's kernel log. A claim that only reads can use it as it is.",
    ),
    Reason.NOT_BLANK: Advice(
        "The volume has no file system, and is not known to be empty: it is not formatted.",
        "If its data matter: save them. If not: the annotation in the message has the volume "
        "formatted, and all data on it are lost.",
    ),
    Reason.FILE_SYSTEM_MISMATCH: Advice(
        "The volume has another file system than the one that is requested.",
        "Request the one that it has, in `csi.fsType` of the PersistentVolume.",
    ),
    Reason.FILE_SYSTEM_DAMAGED: Advice(
        "The check of the file system found damage that is not repaired automatically, or the "
        "kernel has found errors in it while it was mounted.",
        "Do what the message says. Take a snapshot before you repair it by hand.",
    ),
    Reason.FORMAT_FAILED: Advice(
        "Making the file system failed.",
        "Correct the class's parameters, if the message names an option.",
    ),
    Reason.MOUNT_FAILED: Advice(
        "Mounting failed.",
        "Correct `mountOptions`, if the message names an option; otherwise the node's kernel log "
        "says more.",
    ),
    Reason.TARGET_BUSY: Advice(
        "The path is in use, or something else is mounted on it.",
        "End what the message names; kubelet retries.",
    ),
    Reason.TARGET_FULL: Advice(
        "There is no room for what has to be written.",
        "Free space, or inodes, where the message says.",
    ),
    Reason.OPERATION_RUNNING: Advice(
        "An earlier operation on the same volume is not done yet.",
        "Nothing: kubelet asks again. If it stays: the message says which program runs since "
        "when; most often it waits for a device.",
    ),
    Reason.VOLUME_NOT_STAGED: Advice(
        "The volume is not mounted where it should be.",
        "Delete the pod: kubelet mounts the volume again for the next one.",
    ),
    Reason.GROW_FAILED: Advice(
        "The file system could not be grown to the size of its device.",
        "What the message says; the volume stays usable at its old size, also for new pods.",
    ),
    Reason.METADATA_UNAVAILABLE: Advice(
        "Neither the instance metadata service nor the Node object says which instance this is, "
        "or the Node is that of another one.",
        "Allow the instance's pods to reach the metadata service, with a hop limit of 2, or run a "
        "cloud controller or the controller with `--initialize-nodes`. If the Node belongs to "
        "another instance: delete it and restart kubelet.",
    ),
    Reason.PROGRAM_MISSING: Advice(
        "A program that the node plugin needs is not in its image, or it, or a thread of the "
        "plugin's own, cannot be started.",
        "Install the package that the message names, or use the image that is described here. If "
        "it cannot be started: the plugin's pod or the node has used up its memory or its limit "
        "of processes.",
    ),
}


def markdown() -> str:
    """The table of docs/reference/events.md."""
    rows = (f"| `{reason}` | {each.meaning} | {each.remedy} |" for reason, each in ADVICE.items())
    return "\n".join(("| reason | meaning | what to do |", "|---|---|---|", *rows))
