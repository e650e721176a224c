"""What users read about a persistent volume: which volume, both zones, and what to do.

Kubernetes cuts a warning off at 256 characters, so what is quoted is shortened where it may be long
and the zones stay readable.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from provisioner.model.zone import OUTPOST_KEYS
from webhook.model.review import cut

_MOST_OF_NAME = 40
_MOST_OF_VALUE = 32


@dataclass(frozen=True, slots=True)
class Sentences:
    """The sentences about one persistent volume.

    Attributes:
        name: its name; may be a generated one's beginning.
        volume_id: the volume it names.
        field: where it names it, ``spec.csi.volumeHandle``.
    """

    name: str
    volume_id: str
    field: str

    def no_volume_id(self) -> str:
        """Refused: nothing in EC2 is called so."""
        form = "vol-…" if self.field.startswith("spec.csi") else "vol-… or aws:///vol-…"
        return (
            f"{self._subject}: {shortened(self.volume_id)!r} in {self.field} is not the id of an "
            f"EBS volume; write {form}"
        )

    def no_volume(self) -> str:
        """Refused: EC2 was asked, twice."""
        return (
            f"{self._subject}: EC2 has no volume {self._volume} in this account and Region; "
            f"correct {self.field}, or create the volume first"
        )

    def conflict(self, zone: str, verdict: str) -> str:
        """Refused: no term allows the zone."""
        return (
            f"{self._subject}: volume {self._volume} is in {zone}, but spec.nodeAffinity {verdict},"
            f" so no pod could ever mount it; set the zone to {zone} or leave nodeAffinity out"
        )

    def label_conflict(self, zone: str, wrong: Iterable[tuple[str, str]]) -> str:
        """Refused when strict: labels, given as key and value, name another place."""
        said = " and ".join(f"label {key} says {_quoted(value)}" for key, value in wrong)
        return (
            f"{self._subject}: volume {self._volume} is in {zone}, but {said}; correct the label "
            "or remove it"
        )

    def in_doubt_refused(self, why: str) -> str:
        """To be tried again, when strict."""
        return f"{self._subject}: the zone of volume {self._volume} cannot be determined now: {why}"

    def in_doubt(self, why: str) -> str:
        """Warning: let through unchecked."""
        return cut(
            f"{self._subject}: the zone of volume {self._volume} cannot be determined now, so it "
            f"was not checked; missing labels and node affinity are added later: {why}"
        )

    def relabelled(self, zone: str, key: str, value: str, *, removed: bool) -> str:
        """Warning: a wrong label was overwritten, or removed as nodes lack the right one."""
        done = "removed, as nodes there lack it" if removed else "corrected"
        return cut(f"{self._label(zone, key, value)}; the label was {done}")

    def mislabelled(self, zone: str, key: str, value: str) -> str:
        """Warning: a wrong label is there and stays for now."""
        return cut(f"{self._label(zone, key, value)}; the label will be corrected")

    def narrowed(self, zone: str, others: str) -> str:
        """Warning: other zones were taken out of the node affinity."""
        return cut(f"{self._wide(zone, others)}; it was narrowed to {zone}")

    def appended(self, zone: str, key: str) -> str:
        """Warning: the manifest no longer says what is stored, and that can never be changed."""
        return cut(
            f"{self._subject}: {{key: {key}, operator: In, values: [{zone}]}} was appended to "
            "nodeAffinity; add it to the same terms in the manifest, or applying it again will be "
            "refused"
        )

    def too_wide(self, zone: str, others: str) -> str:
        """Warning: the node affinity lets pods run where they cannot mount the volume."""
        return cut(f"{self._wide(zone, others)}, where no pod can mount it")

    def off_outpost(self, outpost_arn: str) -> str:
        """Warning: the node affinity lets pods run off the Outpost that the volume is on."""
        outpost = shortened(outpost_arn.rpartition("/")[2])
        return cut(
            f"{self._subject}: volume {self._volume} is on Outpost {outpost}, but nodeAffinity "
            f"does not require {OUTPOST_KEYS[-1]} {outpost}; leave nodeAffinity out"
        )

    def wrong_hint(self, zone: str, hint: str) -> str:
        """Warning: ``aws://ZONE/…`` names another zone, which nobody believes."""
        return cut(
            f"{self._subject}: {self.field} names zone {shortened(hint)}, but volume "
            f"{self._volume} is in {zone}; write aws:///{self._volume}"
        )

    @property
    def _subject(self) -> str:
        return f'PersistentVolume "{shortened(self.name, _MOST_OF_NAME)}"'

    @property
    def _volume(self) -> str:
        return shortened(self.volume_id)

    def _label(self, zone: str, key: str, value: str) -> str:
        said = f"label {key} says {_quoted(value)}"
        return f"{self._subject}: volume {self._volume} is in {zone}, but {said}"

    def _wide(self, zone: str, others: str) -> str:
        return (
            f"{self._subject}: volume {self._volume} is in {zone}, but spec.nodeAffinity also "
            f"allows {others}"
        )


def shortened(text: str, most: int = _MOST_OF_VALUE) -> str:
    """Text of a user's, cut where a sentence would drown in it."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _quoted(value: str) -> str:
    return shortened(value) or '""'
