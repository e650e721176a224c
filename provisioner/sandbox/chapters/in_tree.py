"""The manifests of a cluster of 2018 are applied as they are: class, claim and pod."""

from __future__ import annotations

from provisioner.model.driver import EBS_DRIVER, IN_TREE_DRIVER
from provisioner.model.persistent_volume import MIGRATED_TO, PROVISIONED_BY
from provisioner.sandbox.stage import (
    ATTACHMENTS,
    CLAIMS,
    PODS,
    PVS,
    REGION_LABEL,
    ZONE_LABEL,
    Json,
    Stage,
    is_owned,
)

TITLE = "A class of the removed plugin kubernetes.io/aws-ebs, unchanged"

CLASS_AND_CLAIM = """\
kind: StorageClass
apiVersion: storage.k8s.io/v1
metadata:
  name: gp2
provisioner: kubernetes.io/aws-ebs
parameters:
  type: gp2
reclaimPolicy: Retain
allowVolumeExpansion: true
volumeBindingMode: Immediate
---
kind: PersistentVolumeClaim
apiVersion: v1
metadata:
  name: ebs-standard-30g
spec:
  accessModes:
    - ReadWriteOnce
  storageClassName: gp2
  resources:
    requests:
      storage: 30Gi
"""

_EXAMPLE = f"""\
{CLASS_AND_CLAIM}---
kind: Pod
apiVersion: v1
metadata:
  name: nginx
spec:
  containers:
    - name: nginx
      image: nginx
      volumeMounts:
        - mountPath: "/var/www/html"
          name: html
  volumes:
    - name: html
      persistentVolumeClaim:
        claimName: ebs-standard-30g
"""


async def tell(stage: Stage) -> None:
    """Tell it.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    teller.manifest(_EXAMPLE)
    stage.leave("storageclass", "gp2")
    await teller.kubectl("apply", "-f", "-", text=_EXAMPLE)

    async def bound() -> Json | None:
        claim: Json = await stage.api.get(f"{CLAIMS}/ebs-standard-30g")
        return claim if claim["status"].get("phase") == "Bound" else None

    claim = await teller.until("the claim is Bound", bound)
    name = claim["spec"]["volumeName"]
    stage.leave("persistentvolume", name)  # the class says Retain
    stage.to_delete[name] = (await stage.volume(name))["VolumeId"]

    async def translated() -> Json | None:
        found: Json = await stage.api.get(f"{PVS}/{name}")
        return found if _is_in_tree(found, stage.to_delete[name]) else None

    what = (
        "its persistent volume has the plugin's form, and Kubernetes has migrated it to the driver"
    )
    await teller.until(what, translated)
    await teller.kubectl("get", "pv", name, "-o", "yaml")

    async def used() -> Json | None:
        volume = await stage.volume(name)
        return volume if is_owned(volume) and await _is_attached(stage, name, volume) else None

    volume = await teller.until("its volume is attached where the pod runs", used)
    await teller.kubectl("get", "pod", "nginx", "-o", "wide")
    stage.show_tags(volume)


def _is_in_tree(found: Json, volume_id: str) -> bool:
    meta, spec = found["metadata"], found["spec"]
    zone, region = (meta.get("labels", {}).get(key, "") for key in (ZONE_LABEL, REGION_LABEL))
    return (
        "csi" not in spec
        and spec["awsElasticBlockStore"]["volumeID"] == volume_id
        and meta["annotations"].get(PROVISIONED_BY) == IN_TREE_DRIVER
        and meta["annotations"].get(MIGRATED_TO) == EBS_DRIVER
        and bool(region)
        and zone.startswith(region)
    )


async def _is_attached(stage: Stage, name: str, volume: Json) -> bool:
    """Whether EC2 and the API server agree that it is on the pod's node."""
    pod = await stage.api.get(f"{PODS}/nginx")
    node = pod["spec"].get("nodeName")
    here = {i.instance_id for i in stage.sandbox.instances if i.private_dns_name == node}
    on = {a["InstanceId"] for a in volume["Attachments"] if a["State"] == "attached"}
    reported = {
        item["spec"]["nodeName"]
        for item in await stage.items(ATTACHMENTS)
        if item["spec"]["source"].get("persistentVolumeName") == name
        and item.get("status", {}).get("attached")
    }
    return on == here and reported == {node} and pod["status"].get("phase") == "Running"
