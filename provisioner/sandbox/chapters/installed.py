"""The product as users install it: pods of the chart take over from the sandbox's own processes."""

from __future__ import annotations

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installed.release import NAME, NAMESPACE
from provisioner.sandbox.stage import Stage

TITLE = "Installed with Helm: image and chart, as pods on the real nodes"

_LEASE = "ebs-csi-aws-com"
# As docs/install-helm.md: kubectl has made the node plugin's namespace, which stays as it is.
_OVER_KUBECTL = ("--take-ownership", "--force-conflicts", "--set", "node.createNamespace=false")

_CLAIM_AND_POD = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: from-the-chart
spec:
  storageClassName: ebs-gp3
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata:
  name: from-the-chart
spec:
  nodeSelector: {ebs-provisioner.io/sandbox-node: real}
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: busybox:1
      command: [sleep, "3600"]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: from-the-chart}
"""


async def tell(stage: Stage) -> None:
    """Tell it; until now the controller, the webhook and the node plugins were processes.

    Raises:
        SandboxError: a step was not seen.
    """
    sandbox, teller, image = stage.sandbox, stage.teller, stage.image
    assert image is not None, "there is no image to install"
    teller.aside(
        "Until now, our programs ran as processes with the rights of their accounts. They end now, "
        "and Helm installs the chart over what kubectl has applied. The volumes stay in use."
    )
    await sandbox.stop_processes()
    teller.console.print(
        f"[dim]$ helm install {NAME} manifests/chart --namespace {NAMESPACE} "
        f"{' '.join(_OVER_KUBECTL)} --wait --set image.tag={image.tag} …[/]"
    )
    await sandbox.install(image, *_OVER_KUBECTL)
    teller.seen("all pods are ready, and one of the controllers leads")
    ours = ("--all-namespaces", "--selector=app.kubernetes.io/name=ebs-provisioner")
    columns = "POD:.metadata.name,ACCOUNT:.spec.serviceAccountName,NODE:.spec.nodeName"
    await teller.kubectl("get", "pods", *ours, f"--output=custom-columns={columns}")
    holder = "custom-columns=LEASE:.metadata.name,HOLDER:.spec.holderIdentity"
    said = await teller.kubectl(
        "get", "lease", _LEASE, "--namespace=kube-system", f"--output={holder}"
    )
    if f"{NAME}-controller-" not in said:
        raise SandboxError(f"the lease {_LEASE} is not held by a pod: {said}")
    teller.manifest(_CLAIM_AND_POD)
    await teller.kubectl("apply", "-f", "-", text=_CLAIM_AND_POD)

    async def runs() -> bool:
        found = await stage.bound("from-the-chart")
        return found is not None and await stage.is_ready("from-the-chart")

    await teller.until("the claim is Bound, and its pod runs", runs)
    written = "echo kept > /data/file && cat /data/file"
    if "kept" not in await teller.kubectl("exec", "from-the-chart", "--", "sh", "-c", written):
        raise SandboxError("the pod cannot read what it wrote")
