"""What events and statuses say, with the reason that is in their text."""

import re
from collections.abc import Iterable
from datetime import datetime

from provisioner.ec2.error_codes import CODES, classify
from provisioner.inspect.explain.view_rules import Said
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.kind_rules import Event
from provisioner.inspect.reading.kinds import EVENTS
from provisioner.model.errors import Reason
from provisioner.model.meta import UnlabelledObject

# Ours stands at the beginning of a message, and of what kubelet quotes of the node plugin.
_OURS = re.compile(r"(?:^|desc = |: )([A-Z][A-Za-z]+): ")
# EC2's code: in our words, and in those of the AWS SDK for Go, which the stock driver passes on.
_CODE = re.compile(r"(?:EC2 answered|api error) ([A-Z][\w.]+)(?::\s*(.*))?", re.DOTALL)
# A code by itself: some of the stock driver's sentences quote no more of EC2's answer.
_WORD = re.compile(r"\b[A-Z]\w+(?:\.\w+)?")
_KNOWN = {each.value: each for each in Reason}
# Where the API server wants events of objects without a namespace (ValidateEvent, 1.36).
_OF_CLUSTER_WIDE = "default"
# Ours without a code of EC2's, in attachError, which holds the sentence alone.
_SENTENCES = (
    (re.compile(r"EC2 has no volume vol-"), Reason.VOLUME_NOT_FOUND),
    (re.compile(r"is attached to instance .*detach it there first"), Reason.VOLUME_IN_USE),
    (re.compile(r"is attached, or being attached, to instance"), Reason.VOLUME_IN_USE),
    (re.compile(r"accepts the attachment of volume .* and drops it"), Reason.KEY_UNUSABLE),
    (re.compile(r"no usable AWS credentials"), Reason.CREDENTIALS_INVALID),
    (re.compile(r"EC2 could not be reached"), Reason.UNREACHABLE),
    (re.compile(r"EC2 does not know instance"), Reason.INSTANCE_NOT_FOUND),
    (re.compile(r"use a claim$"), Reason.NOT_YOUR_VOLUME),
    (re.compile(r"is not an EBS volume; recreate it"), Reason.INVALID_REQUEST),
    (re.compile(r"storageclass\S* \S+ not found"), Reason.CLASS_NOT_FOUND),
    # The stock driver's, without a code.
    (re.compile(r"no EBS volume capacity"), Reason.ZONE_OUT_OF_CAPACITY),
    (re.compile(r"no EC2 IMDS role found"), Reason.CREDENTIALS_INVALID),
)


def reason_in(text: str) -> Reason | None:
    """The finer reason of a message; what EC2's code in it means, if it names none."""
    for found in _OURS.finditer(text):
        if found[1] in _KNOWN:
            return _KNOWN[found[1]]
    for pattern, reason in _SENTENCES:
        if pattern.search(text):
            return reason
    code = _CODE.search(text)
    if code:
        return classify(code[1].rstrip("."), code[2] or "", 0)[0]
    return next((CODES[each] for each in _WORD.findall(text) if each in CODES), None)


def of_event(about: str, event: Event) -> Said:
    """What an event says."""
    return Said(
        about,
        f"event {event.reason}",
        event.message,
        event=event.reason,
        reason=reason_in(event.message),
        warning=event.type == "Warning",
        by=event.component,
        at=event.last_at,
    )


def of_status(about: str, where: str, text: str, at: datetime | None = None) -> Said:
    """What a status says."""
    return Said(about, where, text, reason=reason_in(text), at=at)


async def about(cluster: Cluster, name: str, obj: UnlabelledObject) -> tuple[Said, ...]:
    """The events of an object."""
    selector = f"involvedObject.uid={obj.uid}"
    namespace = obj.metadata.namespace or _OF_CLUSTER_WIDE
    events = await cluster.every(EVENTS, namespace=namespace, field_selector=selector)
    return tuple(of_event(name, each) for each in events)


async def refusals(cluster: Cluster, namespace: str, reasons: Iterable[str]) -> tuple[Said, ...]:
    """Events about objects that could not be created in a namespace, or could at last."""
    found: list[Said] = []
    for reason in reasons:
        selector = f"reason={reason}"
        for each in await cluster.every(EVENTS, namespace=namespace, field_selector=selector):
            owner = each.involved_object
            found.append(of_event(f"{owner.kind} {owner.namespace}/{owner.name}", each))
    return tuple(found)
