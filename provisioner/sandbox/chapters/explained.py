"""A pod gets no node: ``kubectl ebs explain`` says why, and the command that it prints helps."""

from __future__ import annotations

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.stage import PODS, Json, Stage

TITLE = "A pod stays Pending, and explain says why"

# Valid YAML as it stands, so that the tests of documented classes can read the one in it.
_ZONE = "ITS-ZONE"
_CLAIM = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: one-zone
provisioner: ebs.csi.aws.com
volumeBindingMode: Immediate
allowedTopologies:
- matchLabelExpressions:
  - key: topology.kubernetes.io/zone
    values: [ITS-ZONE]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: accounts
spec:
  storageClassName: one-zone
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 10Gi}}
"""

_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: accounts
spec:
  containers:
  - name: accounts
    image: accounts
    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: accounts}
"""


async def tell(stage: Stage) -> None:
    """Tell it. Real nodes are in the first two zones, so it is told of the last.

    Raises:
        SandboxError: a step was not seen.
    """
    teller, zone = stage.teller, stage.sandbox.zones[-1]
    stage.leave("storageclass", "one-zone")
    await teller.kubectl("apply", "-f", "-", text=_CLAIM.replace(_ZONE, zone))
    await teller.until(f"the claim is Bound, in {zone}", lambda: stage.bound("accounts"))
    nodes = [each.private_dns_name for each in stage.sandbox.instances if each.zone == zone]
    await teller.kubectl("cordon", *nodes)
    teller.manifest(_POD)
    await teller.kubectl("create", "-f", "-", text=_POD)

    async def refused() -> str | None:
        pod: Json = await stage.api.get(f"{PODS}/accounts")
        said = [each.get("reason", "") for each in pod["status"].get("conditions", ())]
        return "Unschedulable" if "Unschedulable" in said else None

    await teller.until("the scheduler finds no node for the pod", refused)
    said = await teller.kubectl("ebs", "explain", "pod", "default/accounts", fails=True)
    await teller.kubectl(*command_in(said))

    async def runs() -> bool:
        return await stage.is_ready("accounts")

    await teller.until("the pod runs: explain has named the cause and what helps", runs)
    await teller.kubectl("ebs", "explain", "pod", "default/accounts")
    others = [each for each in nodes if each not in command_in(said)]
    await teller.kubectl("uncordon", *others)


def command_in(said: str) -> list[str]:
    """The words of the command that an explanation ends with, without kubectl itself.

    Raises:
        SandboxError: it has none.
    """
    found = [line.split() for line in said.splitlines() if line.startswith("   kubectl ")]
    if not found:
        raise SandboxError(f"the explanation names no command: {said}")
    return found[-1][1:]
