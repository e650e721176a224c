"""The objects of the demo's story, as a user writes them."""

from typing import Any

PVS = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS = "/api/v1/namespaces/default/pods"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"

CLAIM = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: fast
provisioner: ebs.csi.aws.com
parameters:
  type: gp3
reclaimPolicy: Delete
allowVolumeExpansion: true
volumeBindingMode: Immediate
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: website
spec:
  storageClassName: fast
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 30Gi
"""

STATEFUL_SET = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: near-its-pod
provisioner: ebs.csi.aws.com
parameters:
  type: gp3
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: db
spec:
  serviceName: db
  replicas: 3
  podManagementPolicy: Parallel
  selector:
    matchLabels: {app: db}
  template:
    metadata:
      labels: {app: db}
    spec:
      topologySpreadConstraints:
      - topologyKey: topology.kubernetes.io/zone
        maxSkew: 1
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: db}}
      containers:
      - name: db
        image: db
        volumeMounts:
        - {name: data, mountPath: /data}
  volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      storageClassName: near-its-pod
      accessModes: [ReadWriteOnce]
      resources:
        requests:
          storage: 8Gi
"""

_BY_HAND = """\
apiVersion: v1
kind: PersistentVolume
metadata:
  name: {name}
spec:
  capacity: {{storage: 8Gi}}
  accessModes: [ReadWriteOnce]
  storageClassName: by-hand
  csi:
    driver: ebs.csi.aws.com
    volumeHandle: {volume}
"""

_IN_ZONE = """\
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - {{key: topology.kubernetes.io/zone, operator: In, values: [{zone}]}}
"""

CLAIMS_BY_HAND = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: films
spec:
  storageClassName: by-hand
  volumeName: films
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 8Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: music
spec:
  storageClassName: by-hand
  volumeName: music
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 8Gi}}
"""

PLAYER = """\
apiVersion: v1
kind: Pod
metadata:
  name: player
spec:
  containers:
  - name: player
    image: player
  volumes:
  - name: films
    persistentVolumeClaim: {claimName: films}
  - name: music
    persistentVolumeClaim: {claimName: music}
"""


def by_hand(name: str, volume: str, zone: str = "") -> str:
    """A persistent volume for a volume that is there, with a zone if its user believes in one."""
    return _BY_HAND.format(name=name, volume=volume) + (_IN_ZONE.format(zone=zone) if zone else "")


def affinity(zone: str) -> dict[str, Any]:
    """``spec.nodeAffinity`` of a volume in a zone."""
    within = {"key": ZONE, "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [within]}]}}
