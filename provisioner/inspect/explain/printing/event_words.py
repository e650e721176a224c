"""What the reasons of events mean, Kubernetes' and ours, for ``explain reason``.

Source: the events that kubelet, kube-scheduler, kube-controller-manager (Kubernetes 1.36) and the
CSI sidecars write about volumes; docs/reference/events.md has those of this project.
"""

from provisioner.model.reasons import Advice

_ITS_MESSAGE = "Read the event's message: ours begins with a finer reason. "
_POD = "kubectl ebs explain pod NAME finds the first cause."
_CLAIM = "kubectl ebs explain pvc NAME finds the first cause."
_VOLUME = "kubectl ebs explain pv NAME finds the first cause."
_SNAPSHOT = "kubectl ebs explain snapshot NAME finds the first cause."
_NODE = "kubectl ebs explain node NAME finds the first cause."
_NOTHING = "Nothing."

EVENTS: dict[str, Advice] = {
    # Pods.
    "FailedScheduling": Advice("The scheduler finds no node for the pod.", _POD),
    "FailedAttachVolume": Advice(
        "A volume of the pod could not be attached to its node.", _ITS_MESSAGE + _POD
    ),
    "FailedMount": Advice(
        "Kubelet could not mount a volume of the pod, or it waits for one.", _ITS_MESSAGE + _POD
    ),
    "FailedMapVolume": Advice(
        "Kubelet could not give a raw block volume to the pod.", _ITS_MESSAGE + _POD
    ),
    "SuccessfulAttachVolume": Advice("A volume of the pod was attached to its node.", _NOTHING),
    "FailedCreate": Advice(
        "An owner, such as a StatefulSet, could not create a pod or a claim.",
        "Correct what the message names: a ResourceQuota, or an admission webhook. " + _POD,
    ),
    # Claims.
    "ProvisioningFailed": Advice("No volume could be made for the claim.", _ITS_MESSAGE + _CLAIM),
    "ProvisioningSucceeded": Advice("The claim's PersistentVolume is there.", _NOTHING),
    "ExternalProvisioning": Advice(
        "Kubernetes waits for the driver's controller to make a volume.",
        "Nothing for a minute. If it stays: " + _CLAIM,
    ),
    "WaitForFirstConsumer": Advice(
        "The claim gets its volume with the first pod that uses it.", "Create such a pod."
    ),
    "WaitForPodScheduled": Advice("The claim waits until its pod can be scheduled.", _POD),
    "WaitingForInitialization": Advice(
        "The volume is attached, and its pod waits until the data have arrived.", _NOTHING
    ),
    "FailedBinding": Advice(
        "The claim has no class and no matching PersistentVolume, or could not be created.", _CLAIM
    ),
    "Resizing": Advice("The volume of the claim grows.", _NOTHING),
    "ExternalExpanding": Advice(
        "Kubernetes waits for the driver's controller to grow the volume.",
        "Nothing for a minute. If it stays: " + _CLAIM,
    ),
    "FileSystemResizeRequired": Advice(
        "The volume has grown; its file system grows while a pod uses it.",
        "Start a pod that uses the claim.",
    ),
    "FileSystemResizeSuccessful": Advice("The file system has grown.", _NOTHING),
    "VolumeResizeFailed": Advice(
        "The volume or its file system could not grow.", _ITS_MESSAGE + _CLAIM
    ),
    "VolumeResizeSuccessful": Advice("The volume has grown.", _NOTHING),
    "VolumeModify": Advice("The claim's VolumeAttributesClass is applied.", _NOTHING),
    "VolumeModifySuccessful": Advice("The VolumeAttributesClass was applied.", _NOTHING),
    "VolumeModifyFailed": Advice(
        "The claim's VolumeAttributesClass could not be applied.", _ITS_MESSAGE + _CLAIM
    ),
    "VolumeModifyCanceled": Advice(
        "The change to a VolumeAttributesClass was taken back.", _NOTHING
    ),
    # PersistentVolumes.
    "VolumeFailedDelete": Advice(
        "The volume of a released PersistentVolume was not deleted.", _ITS_MESSAGE + _VOLUME
    ),
    "WrongNodeAffinity": Advice(
        "The PersistentVolume sends its pods to another zone than its volume's.", _VOLUME
    ),
    "LabelsFoughtOver": Advice(
        "Another program changes back the labels that the webhook sets.",
        "Find the other program by the object's managedFields, and stop one of the two.",
    ),
    # Snapshots.
    "SnapshotCreationFailed": Advice("The snapshot was not taken.", _ITS_MESSAGE + _SNAPSHOT),
    "SnapshotContentCreationFailed": Advice(
        "The snapshot-controller could not create the snapshot's content.", _SNAPSHOT
    ),
    "SnapshotContentCheckandUpdateFailed": Advice(
        "Whether the snapshot is ready could not be seen.", _ITS_MESSAGE + _SNAPSHOT
    ),
    "SnapshotCreationWaits": Advice("The snapshot waits and continues by itself.", _NOTHING),
    "SnapshotDeleteError": Advice("The snapshot was not deleted.", _ITS_MESSAGE + _SNAPSHOT),
    "GetSnapshotClassFailed": Advice("The VolumeSnapshotClass could not be read.", _SNAPSHOT),
    # Nodes.
    "Initialized": Advice("What was missing at the Node was filled in.", _NOTHING),
    "NotInitialized": Advice(
        "What is missing at the Node could not be filled in.", _ITS_MESSAGE + _NODE
    ),
    "InstanceTerminated": Advice(
        "The Node's instance is terminated: the Node got the out-of-service taint.",
        "Delete the Node, unless the cloud controller does.",
    ),
    "InService": Advice("The Node's instance runs again: the taint was removed.", _NOTHING),
    "InstanceUnknown": Advice(
        "EC2 does not know the Node's instance, which does not prove that it is terminated.",
        "Check the region and the account. If the machine is gone, delete the Node.",
    ),
}
