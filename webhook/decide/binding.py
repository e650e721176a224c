"""Decide whether a pod may be bound, or a volume attached, to a node of this zone.

The scheduler has looked at zones already; this is for custom schedulers and bindings made by hand.
A denial tells the scheduler nothing but "try again", so one is only given on proof: the node's zone
and the zones of a bound volume are both known and differ.
Source: what a Binding carries and what becomes of a denied one was measured on Kubernetes 1.36.3.
"""

import msgspec

from provisioner.model.attachment import Attachment
from provisioner.model.ids import is_volume_id
from provisioner.model.sentences import listed
from provisioner.model.volume import normalised_handle
from webhook.decide.placement import Placed
from webhook.decide.pod_volumes import placed, volumes_of
from webhook.decide.readings import NO_OBJECT, Basis, Readings, Wanted
from webhook.model import pod as pods
from webhook.model.review import Answer, Json, allow, deny

_WHY = "NodeElsewhere"


class _Target(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    kind: str | None = None
    name: str | None = None


class _Binding(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    target: _Target | None = None


def target_of(binding: Json) -> str:
    """The node that a Binding names, "" for none.

    Its zone is looked up: the labels that the API server puts on a Binding are the caller's own
    when it does not know the node.
    """
    try:
        target = msgspec.convert(binding, _Binding).target
    except msgspec.ValidationError:
        return ""
    if target is None or target.kind not in (None, "", "Node"):
        return ""
    return target.name or ""


def judge(binding: Json, pod: Json, readings: Readings, *, namespace: str) -> Answer:
    """Refuse to bind a pod to a node in another zone than one of its volumes.

    ``pod`` is the one that the Binding's name and namespace tell; ``pod.wanted`` says what to read.
    """
    node_name = target_of(binding)
    read = pods.read(pod)
    volumes = placed(volumes_of(read, namespace), readings, pod_is_there=True)
    return _answer(
        f"{read.title} cannot be bound",
        node_name,
        volumes,
        readings,
        "bind it to a node in {}; the scheduler does so when the persistentvolume has the right "
        "nodeAffinity",
    )


def rests_on(binding: Json, pod: Json, readings: Readings, *, namespace: str) -> Basis:
    """The objects that prove the denial of ``judge`` on the same readings; empty without one."""
    volumes = placed(volumes_of(pods.read(pod), namespace), readings, pod_is_there=True)
    return _basis(target_of(binding), volumes, readings)


def wanted_by_attachment(attachment: Json, driver: str) -> Wanted:
    """The persistent volume or inline EBS volume of a VolumeAttachment for this driver."""
    read = _attachment(attachment, driver)
    source = read.spec.source
    inline = source.inline_volume_spec
    volume_id = normalised_handle(inline.csi.volume_handle) if inline and inline.csi else ""
    name = source.persistent_volume_name
    return Wanted(
        volumes=(name,) if name else (),
        inline={volume_id: ""} if is_volume_id(volume_id) else {},
    )


def judge_attachment(attachment: Json, readings: Readings, *, driver: str) -> Answer:
    """Refuse a VolumeAttachment to a node in another zone than its volume's."""
    read = _attachment(attachment, driver)
    return _answer(
        f'volumeattachment "{read.name}" would fail',
        read.spec.node_name,
        _attached(attachment, readings, driver),
        readings,
        "delete the pod that uses it on that node, and let it be scheduled to {}",
    )


def attachment_rests_on(attachment: Json, readings: Readings, *, driver: str) -> Basis:
    """The objects that prove the denial of ``judge_attachment``; empty without one."""
    node_name = _attachment(attachment, driver).spec.node_name
    return _basis(node_name, _attached(attachment, readings, driver), readings)


def _attachment(attachment: Json, driver: str) -> Attachment:
    try:
        read = msgspec.convert(attachment, Attachment)
    except msgspec.ValidationError:
        return Attachment()
    return read if read.spec.attacher == driver else Attachment()


def _attached(attachment: Json, readings: Readings, driver: str) -> list[Placed]:
    wanted = wanted_by_attachment(attachment, driver)
    found = []
    for name in wanted.volumes:
        volume = readings.volumes.get(name)
        if volume is not None and volume.zones:
            what = f'volume {volume.volume_id} of persistentvolume "{name}" is'
            found.append(Placed(what, volume.zones, Basis(volumes=frozenset({name}))))
    for volume_id in wanted.inline:
        zone = readings.zones.get(volume_id)
        if zone:
            found.append(Placed(f"volume {volume_id} is", frozenset({zone})))
    return found


def _elsewhere(node_name: str, volumes: list[Placed], readings: Readings) -> Placed | None:
    zone = readings.zone_of(node_name)
    if zone is None:
        return None
    return next((each for each in volumes if zone not in each.zones), None)


def _basis(node_name: str, volumes: list[Placed], readings: Readings) -> Basis:
    volume = _elsewhere(node_name, volumes, readings)
    return NO_OBJECT if volume is None else volume.basis | Basis(nodes=frozenset({node_name}))


def _answer(
    what: str, node_name: str, volumes: list[Placed], readings: Readings, fix: str
) -> Answer:
    if not volumes:
        return allow("NothingToDo")
    volume = _elsewhere(node_name, volumes, readings)
    if volume is None:
        return allow("ZonesAgree")
    node = f'node "{node_name}" is in {readings.zone_of(node_name)}'
    sentence = f"{what}: {volume}, but {node}; {fix.format(listed(volume.zones))}"
    return deny(_WHY, sentence, code=403)
