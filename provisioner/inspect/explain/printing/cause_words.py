"""What each cause means that is no reason of an event, and what helps: for ``explain reason``."""

from provisioner.inspect.explain.chain_rules import Cause

MEANING: dict[Cause, str] = {
    Cause.OBJECT_MISSING: "There is no such object.",
    Cause.ADMISSION_DENIED: "An admission webhook or policy refuses the object.",
    Cause.RESOURCE_QUOTA: "A ResourceQuota of the namespace is used up.",
    Cause.WEBHOOK_UNREACHABLE: "The API server cannot ask a webhook that has to be asked.",
    Cause.CLAIM_MISSING: "The pod names a claim that does not exist.",
    Cause.CLAIM_NOT_BOUND: "The claim has no volume.",
    Cause.NO_NODE_IN_ZONE: "No node is in the zone of the pod's volume.",
    Cause.POD_EXCLUDES_ZONE: "The pod's selector or affinity excludes the zone of its volume.",
    Cause.ZONES_DIFFER: "No zone has all of the pod's volumes.",
    Cause.NODES_FULL: "The nodes that could take the pod take no more volumes.",
    Cause.TAINTED: "The nodes that could take the pod have a taint that it does not tolerate.",
    Cause.UNSCHEDULABLE: "The scheduler finds no node, for a reason that it names.",
    Cause.HELD_FOR_MOVE: "A VolumeMove holds the pod back until its claim has another volume.",
    Cause.NOT_SCHEDULED: "The scheduler has not chosen a node.",
    Cause.POD_WAITS: "The pod waits for its volumes or its kubelet, or ends.",
    Cause.CONTAINER_FAILS: "A container does not start, or is not ready; the volumes are attached.",
    Cause.NOT_ATTACHED: "The volume is not attached to the node of the pod.",
    Cause.OTHER_NODE: "The volume is still attached to another node.",
    Cause.ATTACHMENT_STUCK: "A VolumeAttachment is being deleted, and a finalizer keeps it.",
    Cause.ATTACHMENT_UNKNOWN: "Kubernetes has the volume attached, and EC2 has not.",
    Cause.PENDING_IN_EC2: "EC2 has not finished attaching or detaching the volume.",
    Cause.ATTACHMENT_MISSING: "Nobody has created a VolumeAttachment.",
    Cause.OWNERSHIP: "Kubelet gives all files of the volume to the pod's fsGroup.",
    Cause.NOT_MOUNTED: "Kubelet cannot mount the volume, for a reason that it names.",
    Cause.WAITS_FOR_POD: "The claim gets its volume with its first pod.",
    Cause.CLASS_NONE: "The claim has no class, so nobody provisions a volume.",
    Cause.CLASS_NOT_OURS: "The object belongs to another driver.",
    Cause.VOLUME_MISSING: "The claim names a PersistentVolume that does not exist.",
    Cause.VOLUME_TAKEN: "The claim names a PersistentVolume of another claim.",
    Cause.POPULATOR_MISSING: "The claim's source needs a populator, and none has filled it.",
    Cause.SOURCE_MISSING: "The source of the claim or snapshot does not exist.",
    Cause.SOURCE_NOT_READY: "The source of the claim is not ready yet.",
    Cause.CLAIM_LOST: "The PersistentVolume of the claim was deleted.",
    Cause.CLAIM_IN_USE: "The claim is being deleted, and a pod still uses it.",
    Cause.PROVISIONING: "The volume is being created.",
    Cause.NOT_CREATED: "The volume could not be created, for a reason that only a message names.",
    Cause.GROWS: "The volume does not have its new size yet.",
    Cause.FILE_SYSTEM_WAITS: "The volume has grown; its file system grows while a pod uses it.",
    Cause.MODIFYING: "The volume does not have its VolumeAttributesClass yet.",
    Cause.RELEASED: "The claim of the PersistentVolume is gone.",
    Cause.STILL_BOUND: "The PersistentVolume is being deleted, and its claim is still bound.",
    Cause.FINALIZER_STUCK: "The object is being deleted, and a finalizer keeps it.",
    Cause.VOLUME_FAULTY: "EC2 has lost the volume.",
    Cause.NO_CONTROLLER: "Nobody holds the lease: no controller works.",
    Cause.LEASE_EXPIRED: "The holder of the lease no longer renews it.",
    Cause.LEASE_SPLIT: "Two controllers share the leases, so ours does nothing.",
    Cause.NODE_GONE: "The Node no longer exists.",
    Cause.NODE_NOT_READY: "The kubelet of the node does not report, or reports a problem.",
    Cause.NODE_PLUGIN_FAILS: "The node plugin's pod on the node is not ready.",
    Cause.NODE_PLUGIN_ABSENT: "No node plugin runs on the node: its DaemonSet does not select the "
    "node or does not tolerate its taints, or there is none.",
    Cause.DRIVER_NOT_REGISTERED: "The driver is not registered on the node.",
    Cause.STARTUP_TAINT: "The node keeps the taint that waits for the node plugin.",
    Cause.LIMIT_UNKNOWN: "The driver is registered without a number of volumes.",
    Cause.NODE_LIMIT: "The node takes no more volumes.",
    Cause.NO_ZONE_LABEL: "The node has no zone label.",
    Cause.WRONG_ZONE_LABEL: "The node's zone label differs from its instance's zone.",
    Cause.NO_SNAPSHOT_KINDS: "The cluster does not serve VolumeSnapshots in version v1.",
    Cause.NO_SNAPSHOT_CONTROLLER: "The snapshot-controller has not seen the snapshot.",
    Cause.SNAPSHOT_CLASS_MISSING: "The VolumeSnapshotClass does not exist.",
    Cause.CONTENT_MISSING: "The VolumeSnapshotContent of the snapshot does not exist.",
    Cause.SNAPSHOT_WAITS: "The snapshot is not ready yet.",
}

REMEDY: dict[Cause, str] = {
    Cause.OBJECT_MISSING: "Check the name and the namespace.",
    Cause.ADMISSION_DENIED: "Correct what the webhook or the policy names.",
    Cause.RESOURCE_QUOTA: "Raise the quota, or delete what is not needed in the namespace.",
    Cause.WEBHOOK_UNREACHABLE: "Look at the webhook's Service, its pods and its caBundle.",
    Cause.CLAIM_MISSING: "Create the claim, or correct its name in the pod.",
    Cause.CLAIM_NOT_BOUND: "Explain the claim: its own cause comes first.",
    Cause.NO_NODE_IN_ZONE: "Add a node in the zone, or restore a snapshot into another zone.",
    Cause.POD_EXCLUDES_ZONE: "Let the pod run in the zone of its volume.",
    Cause.ZONES_DIFFER: "Restore a snapshot of one volume into the zone of the other.",
    Cause.NODES_FULL: "Add a node, or use an instance type that takes more volumes; if other nodes "
    "have room, let the pod run there.",
    Cause.TAINTED: "Remove the taint, or add a toleration to the pod.",
    Cause.UNSCHEDULABLE: "Free what the scheduler's message names, or add a node.",
    Cause.HELD_FOR_MOVE: "Nothing at first. If it stays: do what the move's status.message says, "
    "or abort the move.",
    Cause.NOT_SCHEDULED: "Nothing at first. If it stays: check that kube-scheduler runs.",
    Cause.POD_WAITS: "Explain the pod: the cause comes first.",
    Cause.CONTAINER_FAILS: "Look at the pod's events and at the container's log. If that names a "
    "full file system: `kubectl ebs df`.",
    Cause.NOT_ATTACHED: "Nothing for a moment. If it stays: read attachError of the "
    "VolumeAttachment.",
    Cause.OTHER_NODE: "End the pod that uses the volume on the other node, by what creates it. If "
    "that node is lost: make sure that its machine is off, then taint it out-of-service.",
    Cause.ATTACHMENT_STUCK: "Start the controller that writes the finalizer; remove a "
    "finalizer only if its controller is gone for good.",
    Cause.ATTACHMENT_UNKNOWN: "Delete the pod, so that the volume is attached again.",
    Cause.PENDING_IN_EC2: "Nothing for a minute. If it stays: look at the instance's status "
    "checks; for `busy`, unmount the volume on the node.",
    Cause.ATTACHMENT_MISSING: "Check that kube-controller-manager runs.",
    Cause.OWNERSHIP: "Nothing: it ends by itself. To have it done once only, set "
    "`fsGroupChangePolicy: OnRootMismatch` in the pod's securityContext.",
    Cause.NOT_MOUNTED: "Correct what kubelet's message names.",
    Cause.WAITS_FOR_POD: "Nothing: create a pod that uses the claim.",
    Cause.CLASS_NONE: "Mark a StorageClass as the default one, or create the claim with a class.",
    Cause.CLASS_NOT_OURS: "Ask the other driver's controller.",
    Cause.VOLUME_MISSING: "Create the PersistentVolume, or create the claim again without "
    "volumeName.",
    Cause.VOLUME_TAKEN: "Name another PersistentVolume in a new claim, or free this one.",
    Cause.POPULATOR_MISSING: "Install the populator, or create the claim without this source.",
    Cause.SOURCE_MISSING: "Create the source, or name another one.",
    Cause.SOURCE_NOT_READY: "Nothing: it continues once the source is ready.",
    Cause.CLAIM_LOST: "Restore a snapshot into a new claim, or create the PersistentVolume again.",
    Cause.CLAIM_IN_USE: "To keep the data, set the reclaim policy of its PersistentVolume "
    "to Retain first; then, or if the data are no longer needed, delete the pods.",
    Cause.PROVISIONING: "Nothing for a minute. If it stays: look at the controller's log.",
    Cause.NOT_CREATED: "Correct what the message names.",
    Cause.GROWS: "Nothing: EC2 and then kubelet do it.",
    Cause.FILE_SYSTEM_WAITS: "Start a pod that uses the claim.",
    Cause.MODIFYING: "Nothing: EC2 does it.",
    Cause.RELEASED: "Nothing for some minutes with reclaim policy Delete. With Retain: delete "
    "the object and the volume if the data are no longer needed.",
    Cause.STILL_BOUND: "Delete the claim; to keep the data, set the reclaim policy to Retain "
    "first.",
    Cause.FINALIZER_STUCK: "Start the controller that writes the finalizer; remove a "
    "finalizer only if its controller is gone for good.",
    Cause.VOLUME_FAULTY: "Restore the newest snapshot into a new claim.",
    Cause.NO_CONTROLLER: "Start the controller, or find out why its pods do not run.",
    Cause.LEASE_EXPIRED: "Start the controller again; leave the lease, it is taken over by itself.",
    Cause.LEASE_SPLIT: "Let only one driver's controller run.",
    Cause.NODE_GONE: "Delete the pod, so that it starts on another node.",
    Cause.NODE_NOT_READY: "Look at the node's conditions and at its kubelet.",
    Cause.NODE_PLUGIN_FAILS: "Look at the log of the node plugin's pod.",
    Cause.NODE_PLUGIN_ABSENT: "Let the DaemonSet select the node and tolerate its taints, or keep "
    "pods with EBS volumes off the node.",
    Cause.DRIVER_NOT_REGISTERED: "Look at the node plugin's pod on the node; it registers the "
    "driver.",
    Cause.STARTUP_TAINT: "Correct what keeps the node plugin from starting there.",
    Cause.LIMIT_UNKNOWN: "Restart the node plugin's pod on the node.",
    Cause.NODE_LIMIT: "Use another node.",
    Cause.NO_ZONE_LABEL: "Label the node with the zone of its instance.",
    Cause.WRONG_ZONE_LABEL: "Correct the label; volumes are made where it says.",
    Cause.NO_SNAPSHOT_KINDS: "Install the CRDs and the snapshot-controller of external-snapshotter "
    "8.",
    Cause.NO_SNAPSHOT_CONTROLLER: "Install or start the snapshot-controller of "
    "external-snapshotter.",
    Cause.SNAPSHOT_CLASS_MISSING: "Create the class, then create the snapshot again.",
    Cause.CONTENT_MISSING: "Create a content with the id of EC2's snapshot, and a snapshot of it.",
    Cause.SNAPSHOT_WAITS: "Nothing while EC2 copies the data; explain the snapshot.",
}


def markdown() -> str:
    """The table of docs/explain.md."""
    rows = (f"| `{each}` | {MEANING[each]} | {REMEDY[each]} |" for each in MEANING)
    return "\n".join(("| cause | meaning | what helps |", "|---|---|---|", *rows))
