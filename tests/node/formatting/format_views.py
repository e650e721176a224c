"""A volume's device as ``node/formatting/rules.py`` sees it, and what may be on it."""

from dataclasses import replace

from provisioner.node.formatting.blank_rules import Data, Zeros
from provisioner.node.formatting.rules import Consent, Signature, View, consent_value

VOLUME = "vol-0123456789abcdef0"
NEW = View(
    device="/dev/nvme1n1",
    volume_id=VOLUME,
    wanted="ext4",
    read_only=False,
    device_read_only=False,
    origin="blank",
    signature=Signature(),
)
ZEROS = Zeros(30_000_000)
DATA = Data(1_048_576, b"MYDB\0\x01\x02\x03" + bytes(56))
NO_CONSENT = Consent("pv-1")
EXT4, EXT3, EXT2, XFS = (
    Signature(n, "filesystem", uuid="u") for n in ("ext4", "ext3", "ext2", "xfs")
)
LVM = Signature("LVM2_member", "raid", uuid="u")
GPT = Signature(partition_table="gpt")
SEVERAL = Signature(is_ambivalent=True)


def consenting(**known) -> View:
    """A view whose persistent volume lets just what is there be erased."""
    view = replace(NEW, **known)
    return replace(view, consent=Consent("pv-1", consent_value(view)))
