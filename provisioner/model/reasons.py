"""What each reason means and what helps: the one table behind README's.

A message says both for the case at hand; this says it for the reason, to whoever meets it in an
alert or a dashboard.
"""

from collections.abc import Mapping

from provisioner.model.errors import Reason
from provisioner.model.explained import Explained
from provisioner.model.node_reasons import OF_THE_NODE

R = Reason


_ITSELF = "Nothing: it is tried again by itself."
_IF_IT_STAYS = "Nothing at first, it is tried again by itself."

EXPLAINED: Mapping[Reason, Explained] = {
    R.ZONE_OUT_OF_CAPACITY: Explained(
        "EC2 has no room left in the zone for volumes of this type.",
        "Nothing, where the class allows another zone and, with WaitForFirstConsumer, the pod can "
        "run there: it is tried there. Else another zone or another type, or wait.",
    ),
    R.TYPE_NOT_IN_ZONE: Explained(
        "The zone does not offer this volume type.",
        "Nothing, where the class allows another zone and, with WaitForFirstConsumer, the pod can "
        "run there: it is tried there. Else another type.",
    ),
    R.ZONE_NOT_FOUND: Explained(
        "EC2 knows no such zone in this region, or the account may not use it.",
        "Correct `allowedTopologies` of the class, or the zone label of the node.",
    ),
    R.ZONE_NOT_ANSWERING: Explained(
        "EC2 has not answered for minutes whether it makes a volume in the zone, and made none.",
        "Nothing, where the class allows another zone and, with WaitForFirstConsumer, the pod can "
        "run there: it is tried there. Else look at the AWS Health Dashboard.",
    ),
    R.QUOTA_EXCEEDED: Explained(
        "A quota of the account is used up.",
        "Raise the quota that the message names in Service Quotas, or delete what is not needed.",
    ),
    R.IOPS_CAPPED: Explained(
        "The volume was made with fewer IOPS than its class asks for: more than EC2 gives in this "
        "region, or for its size.",
        "Nothing, if they suffice. Else a larger claim or another type, as the message says.",
    ),
    R.IOPS_RAISED: Explained(
        "The VolumeAttributesClass asks for fewer IOPS than volumes of its type have at least: the "
        "volume has that many.",
        "Nothing.",
    ),
    R.PERMISSION_DENIED: Explained(
        "The role may not do this in AWS.",
        "Allow the action that the message names; `manifests/iam/` has the whole policy.",
    ),
    R.CREDENTIALS_INVALID: Explained(
        "There are no AWS credentials, or AWS does not accept them.",
        "Look at the role of the ServiceAccount or the instance, and at the clock.",
    ),
    R.KEY_UNUSABLE: Explained(
        "The KMS key does not exist, is disabled, or may not be used by the role.",
        "Correct `kmsKeyId`, the key's policy or the role's rights to the key.",
    ),
    R.INVALID_REQUEST: Explained(
        "What is asked for is impossible: EC2 refuses it, or an object or an option contradicts "
        "itself.",
        "Correct what the message names.",
    ),
    R.TOKEN_MISMATCH: Explained(
        "EC2 has seen this client token with another request.",
        "Nothing: the volume is looked for, else asked for under the next token.",
    ),
    R.VOLUME_NOT_FOUND: Explained(
        "The volume does not exist.",
        "Of a new volume: look at the rights to its KMS key, without which EC2 takes it back. Of "
        "an old one: somebody has deleted it; restore a snapshot.",
    ),
    R.INSTANCE_NOT_FOUND: Explained(
        "The node's instance does not exist.",
        "Delete the Node object, unless the cloud controller does.",
    ),
    R.VOLUME_IN_USE: Explained(
        "The volume is attached elsewhere, or another object names it.",
        "Free it where the message says.",
    ),
    R.VOLUME_STATE: Explained(
        "The volume is in a state in which this is not possible.",
        f"{_IF_IT_STAYS} A volume in state error has to be replaced.",
    ),
    R.INSTANCE_STATE: Explained(
        "The instance is not running, so nothing can be attached to it.",
        "Start it, or let the pod run elsewhere.",
    ),
    R.NOT_ATTACHED: Explained("The volume is not attached to this instance.", _ITSELF),
    R.DEVICE_IN_USE: Explained(
        "The device name is taken on the instance.", "Nothing: another one is tried."
    ),
    R.INSTANCE_FULL: Explained(
        "The instance takes no further volumes.",
        "Another node. If the scheduler sends too many pods there, look at the limit in CSINode.",
    ),
    R.ZONE_MISMATCH: Explained(
        "The volume and the instance are in different zones.",
        "Correct the PersistentVolume's `nodeAffinity`, which can only be made anew; the webhook "
        "fills it in.",
    ),
    R.NOT_YOUR_VOLUME: Explained(
        "A pod names a volume by its id (`awsElasticBlockStore`) that backs a claim of another "
        "namespace, or no pod on the node names it.",
        "Use a claim in the pod's own namespace; `manifests/no-inline-volumes` forbids such pods.",
    ),
    R.NEVER_MODIFIED: Explained("The volume was never modified.", "Nothing."),
    R.MODIFICATION_RUNNING: Explained(
        "The volume's last modification is not completed: EC2 takes the next one then.",
        "Nothing: it is sent once that one is completed. Optimizing can take hours, for large "
        "volumes more than a day.",
    ),
    R.MODIFICATION_LIMIT: Explained(
        "The volume's modifications of a rolling 24 hours are used up.",
        "Nothing: it is sent when EC2 allows it; the message says when, if that is known.",
    ),
    R.SNAPSHOT_NOT_FOUND: Explained(
        "The EBS snapshot does not exist.",
        "Somebody has deleted it; restore another one.",
    ),
    R.SNAPSHOT_STATE: Explained(
        "The EBS snapshot is in a state in which this is not possible.",
        f"{_IF_IT_STAYS} A snapshot in state error has to be taken again.",
    ),
    R.SNAPSHOT_IN_USE: Explained(
        "An AMI uses the EBS snapshot, so it is not deleted; or another VolumeSnapshotContent "
        "names it, so it stays until the last one goes.",
        "Deregister the AMI that the message names, or what else EC2 says; of a content nothing is "
        "to be done.",
    ),
    R.SNAPSHOT_LOCKED: Explained(
        "The EBS snapshot is locked, so it cannot be deleted.",
        "Nothing, if it should be: it is deleted when the lock ends. In governance mode, who may "
        "can unlock it.",
    ),
    R.SNAPSHOT_RATE: Explained(
        "EC2 takes one snapshot of a volume in 15 seconds, and only so many at a time.", _ITSELF
    ),
    R.COPY_RATE: Explained(
        "EC2 copies a volume once at a time, and only so many in a region at a time.", _ITSELF
    ),
    R.INITIALIZATION_RATE: Explained(
        "The volumes that are being initialized in the region have all of the rate that "
        "`volumeInitializationRate` can ask for.",
        f"{_ITSELF} To wait less: a lower rate in the class.",
    ),
    R.THROTTLED: Explained(
        "There are too many calls for the account's quota, or for the API server.",
        f"{_ITSELF} If it lasts: whoever else calls EC2 from this account, or a raised quota and "
        "`--ec2-rate`.",
    ),
    R.REPLY_LOST: Explained(
        "No usable answer came: it may have been carried out, or not.",
        "Nothing: it is found out before anything is tried again.",
    ),
    R.UNREACHABLE: Explained(
        "There is no connection to EC2 or to the API server.",
        f"{_IF_IT_STAYS} If it stays: network, endpoint, proxy, certificates.",
    ),
    R.TIMED_OUT: Explained(
        "No answer came in time.", f"{_IF_IT_STAYS} If it stays: as for `{R.UNREACHABLE}`."
    ),
    R.OBJECT_NOT_FOUND: Explained(
        "An object that is needed does not exist.", "Create what the message names."
    ),
    R.OBJECT_EXISTS: Explained(
        "An object of this name exists already.", "Look whose it is, if the message says so."
    ),
    R.CONFLICT: Explained(
        "Somebody has changed the object meanwhile, or it belongs to another one.",
        f"{_IF_IT_STAYS} If it stays: what the message names.",
    ),
    R.FORBIDDEN: Explained(
        "RBAC does not allow this to the ServiceAccount.",
        "Apply `manifests/rbac.yaml` again; the message names the verb and the resource.",
    ),
    R.UNAUTHORIZED: Explained(
        "The API server does not accept the token.", "Look at the ServiceAccount or the kubeconfig."
    ),
    R.REJECTED: Explained(
        "The API server, or an admission webhook, refuses the object.",
        "What the message says; often a policy of the cluster.",
    ),
    R.EXPIRED: Explained("A watch was behind for too long.", "Nothing: all is listed again."),
    R.UNREADABLE: Explained(
        "An answer is not of the form that Kubernetes documents.",
        "Correct the object that the message names, or delete it; a log line names the field. "
        "Meanwhile no volume is deleted, or taken over from the controller before.",
    ),
    R.NOT_LEADING: Explained(
        "This replica has lost its leases.", "Nothing: the one that has them goes on."
    ),
    R.WRONG_CLOUD: Explained(
        "EC2 is asked in another region or account than the cluster's, so what it does not know "
        "may well be there.",
        "Correct the region, or the controller's role, as the message says; it goes on by itself.",
    ),
    R.CERTIFICATE_UNUSABLE: Explained(
        "The webhook's Secret holds no usable certificate and key.",
        "Correct it, or delete it and apply `manifests/webhook/state.yaml` for a new one.",
    ),
    R.INVALID_CLAIM: Explained(
        "The claim asks for what its class or EBS cannot give.",
        "Make the claim again with what the message says.",
    ),
    R.INVALID_CLASS: Explained(
        "The class has a parameter, or a pair of them, that can never work.",
        "`ebs-provisioner class check NAME` shows all of the class. Delete it and create it anew: "
        "parameters cannot be changed.",
    ),
    R.CLASS_NOT_FOUND: Explained(
        "The claim's StorageClass does not exist.",
        "Create it, or make the claim again with another one.",
    ),
    R.NO_ZONE: Explained(
        "There is no zone in which the volume could be made.",
        "A node with a zone label on which the node plugin is registered, in a zone that the class "
        "allows.",
    ),
    R.NOT_SUPPORTED: Explained(
        "This is not covered, or cannot be done here.", "What the message says."
    ),
    **OF_THE_NODE,
}


def table() -> str:
    """The table for README, in Markdown."""
    rows = [f"| `{reason}` | {row.meaning} | {row.remedy} |" for reason, row in EXPLAINED.items()]
    return "\n".join(["| reason | meaning | what to do |", "|---|---|---|", *rows])
