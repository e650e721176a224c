"""What a volume is made from: a snapshot, or another volume."""

from dataclasses import dataclass

from provisioner.model.ids import is_snapshot_id, is_volume_id

# On the claim that is cloned, as external-provisioner 6.3 writes it: either of us takes it off.
CLAIM_FINALIZER = "provisioner.storage.kubernetes.io/cloning-protection"


@dataclass(frozen=True, slots=True)
class Source:
    """The snapshot, or the volume, that EC2 makes a volume from: one of the two.

    Attributes:
        snapshot_id: of a restore, "" for a clone.
        volume_id: of a clone, "" for a restore.
        size_gib: nothing smaller can be made from it; 0: EC2 will say.
    """

    snapshot_id: str = ""
    volume_id: str = ""
    size_gib: int = 0

    def is_same(self, other: "Source | None") -> bool:
        """Whether both name the same in EC2."""
        return other is not None and (self.snapshot_id, self.volume_id) == (
            other.snapshot_id,
            other.volume_id,
        )

    def __str__(self) -> str:
        size = f"+{self.size_gib}" if self.size_gib else ""
        return f"{self.snapshot_id or self.volume_id}{size}"


def parse(text: str) -> Source | None:
    """Read what ``str`` writes of a source; None for anything else."""
    name, _, size = text.partition("+")
    if size and not (size.isascii() and size.isdecimal()):
        return None
    size_gib = int(size) if size else 0
    if is_snapshot_id(name):
        return Source(snapshot_id=name, size_gib=size_gib)
    return Source(volume_id=name, size_gib=size_gib) if is_volume_id(name) else None
