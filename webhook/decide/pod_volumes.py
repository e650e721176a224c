"""Which volumes a pod uses, and where those lie that are known."""

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.model.pod import PodVolume
from webhook.decide.placement import Placed
from webhook.decide.readings import Basis, Readings, Wanted
from webhook.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Use:
    """One claim of a pod.

    Attributes:
        title: what messages call it.
        claim_key: ``namespace/name``; "" for a claim to be made for a pod that has no name yet.
        is_made_for_pod: an ephemeral volume: its claim is made after the pod, and goes with it.
        class_name: of an ephemeral volume, "" for the default class.
    """

    title: str
    claim_key: str
    is_made_for_pod: bool = False
    class_name: str = ""


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """What a pod uses: claims, each once, and EBS volumes by id with the user's zone or ""."""

    uses: tuple[Use, ...]
    inline: Mapping[str, str]

    @property
    def wanted(self) -> Wanted:
        """The objects that say where these volumes are."""
        return Wanted(
            claims=tuple(use.claim_key for use in self.uses if use.claim_key),
            classes=tuple(use.class_name for use in self.uses if use.class_name),
            inline=self.inline,
        )


def volumes_of(pod: Pod, namespace: str) -> PodVolumes:
    """Read the volumes of a pod in this namespace."""
    uses: dict[str, Use] = {}
    inline: dict[str, str] = {}
    for volume in pod.volumes:
        use = _use(pod, volume, namespace)
        if use is not None:
            uses.setdefault(use.title, use)
        ebs = volume.aws_elastic_block_store
        if ebs is not None and ebs.volume_id is not None:
            inline[ebs.volume_id] = inline.get(ebs.volume_id) or ebs.zone_hint
    return PodVolumes(tuple(uses.values()), inline)


def _use(pod: Pod, volume: PodVolume, namespace: str) -> Use | None:
    source = volume.persistent_volume_claim
    if source is not None and source.claim_name:
        return Use(f'claim "{source.claim_name}"', f"{namespace}/{source.claim_name}")
    if volume.ephemeral is None or not volume.name:
        return None
    # Source: Kubernetes 1.36 component-helpers storage/ephemeral VolumeClaimName.
    key = f"{namespace}/{pod.name}-{volume.name}" if pod.name else ""
    title = f'ephemeral volume "{volume.name}"'
    return Use(title, key, is_made_for_pod=True, class_name=volume.ephemeral.class_name)


def placed(volumes: PodVolumes, readings: Readings, *, pod_is_there: bool) -> list[Placed]:
    """The volumes whose zones are known.

    While a pod is being created, a claim with the name of its ephemeral volume's is that of an
    earlier pod and on its way out: it says nothing.
    """
    found = [
        each
        for use in volumes.uses
        if pod_is_there or not use.is_made_for_pod
        if (each := _bound(use, readings)) is not None
    ]
    for volume_id in volumes.inline:
        zone = readings.zones.get(volume_id)
        if zone:
            found.append(Placed(f"its inline volume {volume_id} is", frozenset({zone})))
    return found


def _bound(use: Use, readings: Readings) -> Placed | None:
    # No volume id and no name of a persistent volume: who may make a pod may not read those, and
    # an id is all that it takes to use the volume.
    name, volume = readings.volume_of(use.claim_key)
    if volume is None or not volume.zones:
        return None
    return Placed(
        f"{use.title} is bound to a volume",
        volume.zones,
        Basis(claims=frozenset({use.claim_key}), volumes=frozenset({name})),
    )
