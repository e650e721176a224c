"""Pods that write files of known content to their volumes, and check those of earlier pods.

What a pod found is in its termination message: no exec, no logs, no network. Its exit status is
``LOST`` for a wrong byte. Each line of a file is unlike all others, so that a block in the wrong
place is seen too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

Json = dict[str, Any]

LOST: Final = 9
TOLD: Final = "/dev/termination-log"
"""What a script writes there is its pod's termination message."""

_PLAIN: Final[Json] = {
    "hostNetwork": True,
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 0,
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
}
_DATA: Final = "/data"
_CHECK_AND_WRITE: Final = """\
lost() { echo "LOST: $*" > "$TOLD"; exit 9; }
cd "$DATA" || exit 1
for file in $(ls); do
  case " lost+found $KNOWN $NEW " in *" $file "*) ;; *) lost "stranger $file" ;; esac
done
if [ -n "$SUMS" ]; then
  wrong=$(printf '%s\\n' "$SUMS" | sha256sum -c - 2>&1) || lost "$(echo "$wrong" | grep -v OK$)"
fi
[ -z "$NEW" ] || awk -v n="$NEW" -v c="$LINES" \\
  'BEGIN { for (i = 0; i < c; i++) printf "%s %d\\n", n, i }' > "$NEW" || exit 1
echo "checked $KNOWN wrote $NEW" > "$TOLD"
"""


@dataclass(frozen=True)
class KnownFile:
    """A file whose content follows from its name and its number of lines."""

    name: str
    lines: int

    @cached_property
    def content(self) -> bytes:
        """What is in it."""
        return "".join(f"{self.name} {i}\n" for i in range(self.lines)).encode()

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return len(self.content)

    @property
    def sha256(self) -> str:
        """What ``sha256sum`` prints of it."""
        return hashlib.sha256(self.content).hexdigest()


def pod(
    name: str,
    script: str,
    claims: Mapping[str, str],
    *,
    image: str,
    node: str = "",
    environment: Mapping[str, str] | None = None,
    devices: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Return a pod that runs a script of busybox's shell once.

    Args:
        name: the pod's.
        script: what it runs; it is given ``environment``.
        claims: claims by the folder that each is mounted at.
        image: has ``/bin/sh`` and no need of a network.
        node: the only one that it may run on, "" for any.
        environment: its variables.
        devices: claims by the device that each is in the pod, for those of mode Block.
        spec: what is to be otherwise.
    """
    every = {**claims, **(devices or {})}
    volumes = {path: f"volume-{number}" for number, path in enumerate(every)}
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        **_places(volumes, claims, devices or ()),
    }
    claimed = [
        {"name": volumes[path], "persistentVolumeClaim": {"claimName": claim}}
        for path, claim in every.items()
    ]
    where = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    body = _PLAIN | where | {"containers": [container], "volumes": claimed}
    return {"metadata": {"name": name}, "spec": body | spec}


def _places(volumes: Mapping[str, str], claims: Iterable[str], devices: Iterable[str]) -> Json:
    """Where a container has its volumes."""
    return {
        "volumeMounts": [{"name": volumes[path], "mountPath": path} for path in claims],
        "volumeDevices": [{"name": volumes[path], "devicePath": path} for path in devices],
    }


def checking_pod(
    name: str,
    claim: str,
    known: Sequence[KnownFile],
    new: KnownFile | None,
    *,
    image: str,
    node: str = "",
) -> Json:
    """Return a pod that checks that a volume holds these files and no others, and writes one.

    It may be run again by kubelet: the same file is written again. It does not ask for what it has
    written to be on disk, which is what unmounting is for.
    """
    environment = {
        "DATA": _DATA,
        "TOLD": TOLD,
        "KNOWN": " ".join(each.name for each in known),
        "SUMS": "\n".join(f"{each.sha256}  {each.name}" for each in known),
        "NEW": new.name if new else "",
        "LINES": str(new.lines if new else 0),
    }
    return pod(
        name,
        _CHECK_AND_WRITE,
        {_DATA: claim},
        image=image,
        node=node,
        environment=environment,
        # A container whose runtime is killed in the wrong moment fails: kubelet is to try again.
        restartPolicy="OnFailure",
    )


def told(found: Json) -> str | None:
    """Return the termination message of a pod that has succeeded; None while it has not.

    Raises:
        AssertionError: it failed, or a byte on its volume is not what it was; with its message.
    """
    name = found["metadata"]["name"]
    for status in found.get("status", {}).get("containerStatuses") or ():
        for state in (status.get("state"), status.get("lastState")):
            ended = (state or {}).get("terminated") or {}
            if ended.get("exitCode") == LOST:
                raise AssertionError(f"pod {name}: {ended.get('message')}")
    phase = found.get("status", {}).get("phase")
    if phase == "Failed":
        raise AssertionError(f"pod {name} has failed: {_essence(found)}")
    if phase != "Succeeded":
        return None
    ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
    return str(ended.get("message", "")).strip()


def _essence(found: Json) -> str:
    status = found["status"]
    states = [each.get("state") for each in status.get("containerStatuses") or ()]
    return f"{status.get('reason', '')} {status.get('message', '')} {states}"
