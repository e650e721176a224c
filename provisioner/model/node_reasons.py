"""What each reason of the node plugin means and what helps; a part of ``model/reasons.py``'s table.

They are not in events of ours: the kubelet tells them in those of the pod (FailedMount), reason and
message as the end of its own sentence.
"""

from collections.abc import Mapping

from provisioner.model.errors import Reason
from provisioner.model.explained import Explained

R = Reason

OF_THE_NODE: Mapping[Reason, Explained] = {
    R.DEVICE_NOT_FOUND: Explained(
        "The volume is attached, says EC2, but the node has no device of it.",
        "Nothing at first: the kubelet asks again. If it stays: look at the node's kernel log, and "
        "restart the instance if its NVMe driver hangs.",
    ),
    R.WRONG_DEVICE: Explained(
        "The device under the volume's name is another one, its serial cannot be read, or (on Xen) "
        "its name was given on another instance.",
        "Nothing was written. Look at the links and the device that the message names; a stale "
        "link goes with `udevadm trigger`. A name of another instance goes with its "
        "VolumeAttachment, if you delete that.",
    ),
    R.DEVICE_BUSY: Explained(
        "Something on the node other than this plugin uses the device.",
        "Free it: a mount by hand, LVM, RAID or multipath have it, or a container with a file of "
        "it open that was mounted otherwise (`fsType`, `ro`) before.",
    ),
    R.DEVICE_READ_ONLY: Explained(
        "The device does not take writes, and the pod wants to write.",
        "Look at the node's kernel log. A claim that only reads can use it as it is.",
    ),
    R.NOT_BLANK: Explained(
        "The volume has no file system, and is not known to be empty: it is not formatted.",
        "If its data matter: save them. If they do not: the annotation that the message gives has "
        "it formatted, and all data on it are lost.",
    ),
    R.FILE_SYSTEM_MISMATCH: Explained(
        "The volume has another file system than the one that is asked for.",
        "Ask for the one that it has, in `csi.fsType` of the PersistentVolume.",
    ),
    R.FILE_SYSTEM_DAMAGED: Explained(
        "The check of the file system found damage that is not repaired by itself, or the kernel "
        "has found errors in it while it was mounted.",
        "What the message says; take a snapshot before you repair it by hand.",
    ),
    R.FORMAT_FAILED: Explained(
        "Making the file system failed.",
        "Correct the class's parameters, if the message names an option.",
    ),
    R.MOUNT_FAILED: Explained(
        "Mounting failed.",
        "Correct `mountOptions`, if the message names an option; else the node's kernel log says "
        "more.",
    ),
    R.TARGET_BUSY: Explained(
        "The path is in use, or something else is mounted on it.",
        "End what the message names; the kubelet tries it again.",
    ),
    R.TARGET_FULL: Explained(
        "There is no room for what has to be written.",
        "Free space, or inodes, where the message says.",
    ),
    R.OPERATION_RUNNING: Explained(
        "An earlier operation on the same volume is not done yet.",
        "Nothing: the kubelet asks again. If it stays: the message says which program runs since "
        "when, and most often waits for a device.",
    ),
    R.VOLUME_NOT_STAGED: Explained(
        "The volume is not mounted where it should be.",
        "Delete the pod: the kubelet mounts it anew for the next one.",
    ),
    R.GROW_FAILED: Explained(
        "The file system could not be grown to the size of its device.",
        "What the message says; the volume stays usable at its old size, also for new pods.",
    ),
    R.METADATA_UNAVAILABLE: Explained(
        "Neither the instance metadata service nor the Node object tell which instance this is, "
        "or the Node is that of another one.",
        "Allow the instance's pods to reach the metadata service, with a hop limit of 2, or run a "
        "cloud controller or the controller with `--initialize-nodes`. A Node of another instance: "
        "delete it and restart kubelet.",
    ),
    R.PROGRAM_MISSING: Explained(
        "A program that the node plugin needs is not in its image, or it, or a thread of the "
        "plugin's own, cannot be started.",
        "Install the package that the message names, or use the image that is described here. "
        "Where it cannot be started: the plugin's pod or the node has used up its memory or its "
        "limit of processes.",
    ),
}
