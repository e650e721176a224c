"""The file systems that classes may ask for and the node plugin makes."""

FILE_SYSTEMS = ("ext4", "ext3", "xfs")
DEFAULT_FILE_SYSTEM = "ext4"
WINDOWS_FILE_SYSTEM = "ntfs"  # what aws-ebs-csi-driver makes on Windows nodes
