"""A claim is edited to be larger while a pod on a real node uses it, and the pod sees it."""

from __future__ import annotations

from provisioner.sandbox import kubectl
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.stage import CLAIMS, PODS, Stage

TITLE = "A file system grows under a running pod"

# xfs: the kernel grows a mounted ext4 only for CAP_SYS_RESOURCE, which root in a container may not
# have.
_DIARY = """\
kind: StorageClass
apiVersion: storage.k8s.io/v1
metadata:
  name: standard-xfs
provisioner: kubernetes.io/aws-ebs
parameters:
  type: gp2
  fsType: xfs
allowVolumeExpansion: true
volumeBindingMode: WaitForFirstConsumer
---
kind: PersistentVolumeClaim
apiVersion: v1
metadata:
  name: diary
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: standard-xfs
  resources: {requests: {storage: 30Gi}}
---
kind: Pod
apiVersion: v1
metadata:
  name: diary
spec:
  nodeSelector: {ebs-provisioner.io/sandbox-node: real}
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: writer
      image: busybox:1
      command: [sleep, "3600"]
      volumeMounts:
        - {mountPath: /data, name: data}
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: diary}
"""

_IN_POD = ("exec", "diary", "--")
_LARGER = '{"spec": {"resources": {"requests": {"storage": "40Gi"}}}}'
_WAS_KIB = 30 * 2**20
"""What ``df`` shows of 40 GiB is more, whatever the file system needs of it for itself."""


async def tell(stage: Stage) -> None:
    """Tell it, after a chapter in which real nodes were uncordoned.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    teller.manifest(_DIARY)
    stage.leave("storageclass", "standard-xfs")
    await teller.kubectl("apply", "-f", "-", text=_DIARY)
    await teller.until("the pod runs", lambda: stage.is_ready("diary"))
    await teller.kubectl(*_IN_POD, "df", "-h", "/data")
    before = await _container(stage)
    await teller.kubectl("patch", "pvc", "diary", f"--patch={_LARGER}")

    async def grown() -> bool:
        return await _size_kib(stage) > _WAS_KIB

    await teller.until("the pod sees more than 30 GiB", grown)
    await teller.kubectl(*_IN_POD, "df", "-h", "/data")

    async def told() -> bool:
        status = (await stage.api.get(f"{CLAIMS}/diary"))["status"]
        # From Kubernetes 1.37 on there is also one that says whether a pod uses the claim.
        about = {each["type"] for each in status.get("conditions") or ()} - {"Unused"}
        return status["capacity"]["storage"] == "40Gi" and not about

    await teller.until("the claim shows it too", told)
    await teller.kubectl("get", "pvc", "diary")
    if await _container(stage) != before:
        raise SandboxError("the pod's container was replaced")
    teller.seen("its container is still the same")


async def _size_kib(stage: Stage) -> int:
    """The size of the file system, as the pod sees it; 0 if it does not answer."""
    status, said, _ = await kubectl.run(stage.sandbox.plane, *_IN_POD, "df", "-k", "/data")
    return 0 if status else int(said.splitlines()[-1].split()[1])


async def _container(stage: Stage) -> tuple[str, int]:
    """Its id, and how often it was started again."""
    pod = await stage.api.get(f"{PODS}/diary")
    (status,) = pod["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]
