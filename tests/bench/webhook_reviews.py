"""The reviews that are sent: of pods with two bound claims, as the API server of 1.36 has them."""

import uuid
from collections.abc import Callable
from typing import Any

import msgspec

Json = dict[str, Any]

PATH = "/validate/pods"
# Each is replaced.
_UID = "00000000-0000-4000-8000-0000000bench"
_POD, _CLAIMS = "pod-name-0", ("claim-00-0", "claim-00-1")


def claim_name(number: int) -> str:
    """The name of a claim, of one length for all."""
    return f"data-{number:05}"


def pod(name: str, claims: tuple[str, ...], **spec: Any) -> Json:
    """A pod of a StatefulSet with a database and its exporter, before the API server has it."""
    labels = {
        "app.kubernetes.io/name": "postgresql",
        "app.kubernetes.io/instance": "orders",
        "app.kubernetes.io/component": "primary",
        "controller-revision-hash": "orders-postgresql-6d5f8c7b9",
        "statefulset.kubernetes.io/pod-name": name,
    }
    mounts = [
        {"name": claim, "mountPath": f"/var/lib/{number}"} for number, claim in enumerate(claims)
    ]
    probe = {"exec": {"command": ["/bin/sh", "-c", "pg_isready -U postgres"]}, "periodSeconds": 10}
    secret = {"secretKeyRef": {"name": "orders-postgresql", "key": "postgres-password"}}
    database = {
        "name": "postgresql",
        "image": "registry.example.com/postgresql:17.2.0",
        "env": [
            {"name": "POSTGRES_PASSWORD", "valueFrom": secret},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *({"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(12)),
        ],
        "ports": [{"name": "tcp-postgresql", "containerPort": 5432}],
        "livenessProbe": probe | {"initialDelaySeconds": 30},
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}},
        "volumeMounts": mounts,
    }
    exporter = {
        "name": "metrics",
        "image": "registry.example.com/postgres-exporter:0.16.0",
        "ports": [{"name": "http-metrics", "containerPort": 9187}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "containers": [database, exporter],
            "volumes": [
                {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims
            ],
            "securityContext": {"fsGroup": 1001},
            **spec,
        },
    }


SPECIMEN = pod(_POD, _CLAIMS)
"""To be shown to the API server, which fills in its defaults."""


class Reviews:
    """HTTP requests by number, each about another pod with two claims of one zone.

    Args:
        stored: ``SPECIMEN`` as the API server returns it.
        claims: how many there are, in each zone every ``zones``-th.
        zones: how many there are.
        name: of a claim, of 0 and up.
        namespace: of the claims and the pods.

    Attributes:
        size: bytes of a body.
    """

    def __init__(
        self,
        stored: Json,
        claims: int,
        zones: int,
        *,
        name: Callable[[int], str] = claim_name,
        namespace: str = "default",
    ) -> None:
        self._rounds, self._zones, self._name = claims // zones, zones, name
        self._body = msgspec.json.encode(_review(stored, namespace))
        self.size = len(self._body)

    def claims_of(self, number: int) -> tuple[str, str]:
        """Two claims of one zone, with each number two others."""
        zone, turn = number % self._zones, 2 * (number // self._zones)
        first, second = (zone + self._zones * (at % self._rounds) for at in (turn, turn + 1))
        return self._name(first), self._name(second)

    def request(self, number: int) -> tuple[str, bytes]:
        """The review's uid, and all bytes of the request."""
        uid = str(uuid.UUID(int=number))
        body = self._body.replace(_UID.encode(), uid.encode())
        for placeholder, claim in zip(_CLAIMS, self.claims_of(number), strict=True):
            body = body.replace(placeholder.encode(), claim.encode())
        body = body.replace(_POD.encode(), f"{number:010}".encode())
        head = (
            f"POST {PATH}?timeout=2s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            "User-Agent: kube-apiserver-admission\r\n"
            f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\n"
            "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        return uid, head.encode() + body


def _review(stored: Json, namespace: str) -> Json:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    account = "system:serviceaccount:kube-system:statefulset-controller"
    groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
    ]
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": _UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": _POD,
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {"username": account, "uid": str(uuid.UUID(int=1)), "groups": groups},
            "object": stored | {"metadata": stored["metadata"] | {"namespace": namespace}},
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }
