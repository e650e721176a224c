"""VolumeMoves on the API server: found, made, aborted, and dry runs removed.

Each request may be sent twice with the effect of once. What is missing, a right or the CRD, is told
in one sentence.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, TypeVar

from provisioner.inspect.command_line import KubeTarget
from provisioner.inspect.df.usage import on_node
from provisioner.inspect.shell_words import with_cluster
from provisioner.kube.client import KubeClient, Patch, find
from provisioner.kube.resources import ACCESS_REVIEWS, CLAIMS, VOLUME_MOVES, Resource, T
from provisioner.model.claim import Claim
from provisioner.model.errors import NO_ANSWER, KubeError, Outcome, Reason, StorageError
from provisioner.model.volume_move import VolumeMove
from provisioner.moves import wish_rules
from provisioner.moves.kinds import OWNED_PODS

A = TypeVar("A")
ROLE = "ebs-provisioner-volume-mover"  # manifests/volume-moves/mover.yaml
_NOT_INSTALLED = (
    "this cluster has no VolumeMoves: have somebody install the component manifests/volume-moves, "
    "or with Helm set controller.volumeMoves=true (docs/move.md)"
)
# Source: Kubernetes 1.36 API concepts, "Field validation".
_UNKNOWN_FIELD = "unknown field"
_TOO_OLD = (
    "the CRD of VolumeMoves in this cluster is older than this command, and does not know the "
    "option: have somebody install the newer component manifests/volume-moves and controller"
)
_PAUSES_S = (0.5, 1.0, 2.0)
# CONFLICT: another move has this name by now (preconditions on the UID).
_GONE = frozenset({Reason.OBJECT_NOT_FOUND, Reason.CONFLICT})


@asynccontextmanager
async def connected(target: KubeTarget) -> AsyncIterator[KubeClient]:
    """A client of the API server.

    Raises:
        StorageError: there is no usable kubeconfig; one clear line. Commands in it, and in one
            that is raised where the client is used, name the cluster.
    """
    try:
        async with await target.connect() as client:
            yield client
    except StorageError as error:
        error.message = with_cluster(error.message, target.flags)
        raise


class Moves:
    """The VolumeMoves of one API server. All methods raise ``StorageError``, one sentence each.

    Attributes:
        flags: that name the cluster to kubectl, for commands that are printed.
    """

    def __init__(self, client: KubeClient, flags: str = "") -> None:
        self.flags = flags
        self._client = client

    async def every(self, namespace: str = "") -> list[VolumeMove]:
        """Those of a namespace, or all."""
        listing = self._client.list(VOLUME_MOVES, namespace=namespace)
        return list((await _told(listing, "list", "volumemoves", namespace)).items)

    async def one(self, namespace: str, name: str) -> VolumeMove | None:
        """One move, as it is now; None if there is none of that name."""
        found = find(self._client, VOLUME_MOVES, name, namespace)
        return await _told(found, "get", "volumemoves", namespace)

    async def object(self, resource: Resource[T], namespace: str, name: str) -> T | None:
        """An object of a namespace, as it is now; None if there is none of that name."""
        found = find(self._client, resource, name, namespace)
        return await _told(found, "get", resource.plural, namespace)

    async def claim(self, namespace: str, name: str) -> Claim | None:
        """A claim, as it is now."""
        found = find(self._client, CLAIMS, name, namespace)
        return await _told(found, "get", "persistentvolumeclaims", namespace)

    async def check_rights(self, namespace: str, *verbs: str) -> None:
        """Whether one may do all of this with VolumeMoves; what is not known counts as a yes.

        Raises:
            StorageError: one may not.
        """
        answers = await asyncio.gather(*(self._may(namespace, verb) for verb in verbs))
        for verb, may in zip(verbs, answers, strict=True):
            if not may:
                raise _forbidden(verb, "volumemoves", namespace)

    async def _may(self, namespace: str, verb: str) -> bool:
        wanted = {"namespace": namespace, "verb": verb, "resource": VOLUME_MOVES.plural}
        body = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": wanted | {"group": VOLUME_MOVES.group}},
        }
        try:
            review = await self._client.create(ACCESS_REVIEWS, body)
        except KubeError:
            return True  # the request itself will tell
        return review.status.allowed

    async def make(self, namespace: str, body: Mapping[str, Any]) -> VolumeMove:
        """Create a move; one of its name that asks for the same is the one that was made before.

        Raises:
            StorageError: refused, or whether it was created cannot be known.
        """
        try:
            return await _patiently(
                # Else an option that the CRD does not know would be left out of the move.
                lambda: self._client.create(VOLUME_MOVES, body, namespace, strict=True)
            )
        except KubeError as error:
            if error.reason is not Reason.OBJECT_EXISTS:
                raise _translated(error, "create", "volumemoves", namespace) from error
        return await self._same(namespace, body)

    async def _same(self, namespace: str, body: Mapping[str, Any]) -> VolumeMove:
        name = str(body["metadata"]["name"])
        found = await self.one(namespace, name)
        if found is None:
            raise StorageError(
                Reason.CONFLICT,
                f"VolumeMove {namespace}/{name} was deleted by somebody just now: run it again",
            )
        if not wish_rules.is_made_of(found, body):
            raise StorageError(
                Reason.CONFLICT,
                f"there is another VolumeMove {namespace}/{name}, which asks for something else: "
                "wait for its end, and delete it",
            )
        return found

    async def used_bytes(self, move: VolumeMove) -> int:
        """What the files of a claim take, as the node of one of its pods measures it; 0 if unknown.

        Others hear of it once its pods are stopped.
        """
        for name in move.told.plan.pods if move.told.plan is not None else ():
            with suppress(KubeError, ValueError):
                found = await self._measured(move.metadata.namespace, name)
                if move.claim_key in found:
                    return found[move.claim_key]
        return 0

    async def copied_bytes(self, move: VolumeMove) -> tuple[int, int]:
        """Of a move whose pod copies files: bytes in use on the new volume, and on the old one.

        Both 0 if they are not measured yet: a kubelet does that once a minute.

        Raises:
            KubeError: the node does not answer, or may not be asked.
            ValueError: what it says is unreadable.
        """
        namespace, pod = move.metadata.namespace, move.pod_name
        found = await self._measured(namespace, pod)
        return found.get(f"{namespace}/{pod}-to", 0), found.get(f"{namespace}/{pod}-from", 0)

    async def _measured(self, namespace: str, pod_name: str) -> Mapping[str, int]:
        """Bytes in use by claim, on the node of a pod, for whoever may get nodes/proxy."""
        pod = await self._client.get(OWNED_PODS, pod_name, namespace)
        node = str(pod.spec.get("nodeName") or "")
        found = await on_node(self._client, node) if node else ()
        return {each.key: each.used_bytes for each in found}

    async def abort(self, move: VolumeMove) -> VolumeMove | None:
        """Have it undone; None if it is gone. Whether that is still possible, its controller says.

        Raises:
            StorageError: refused, or no answer came to several tries.
        """
        namespace = move.metadata.namespace
        body = {"metadata": {"uid": move.uid}, "spec": {"abort": True}}
        merge = Patch.MERGE

        def ask() -> Awaitable[VolumeMove]:
            return self._client.patch(
                VOLUME_MOVES, move.name, body, kind=merge, namespace=namespace
            )

        try:
            return await _patiently(ask)
        except KubeError as error:
            if error.reason in _GONE:
                return None
            raise _translated(error, "patch", "volumemoves", namespace) from error

    async def remove(self, move: VolumeMove) -> None:
        """Delete exactly this move; it is no failure if it is gone already.

        Raises:
            StorageError: it may still be there.
        """
        namespace = move.metadata.namespace

        def ask() -> Awaitable[VolumeMove | None]:
            return self._client.delete(VOLUME_MOVES, move.name, namespace=namespace, uid=move.uid)

        try:
            await _patiently(ask)
        except KubeError as error:
            if error.reason not in _GONE:
                raise _translated(error, "delete", "volumemoves", namespace) from error


async def _patiently(ask: Callable[[], Awaitable[A]]) -> A:
    """The answer to a request that has the effect of one however often it is sent."""
    for pause_s in _PAUSES_S:
        try:
            return await ask()
        except KubeError as error:
            if error.reason not in NO_ANSWER:
                raise
        await asyncio.sleep(pause_s)
    return await ask()


async def _told(answer: Awaitable[A], verb: str, plural: str, namespace: str) -> A:
    try:
        return await answer
    except KubeError as error:
        raise _translated(error, verb, plural, namespace) from error


def _translated(error: KubeError, verb: str, plural: str, namespace: str) -> StorageError:
    """The same failure in the words of this command."""
    # Admission forbids too, and says why: RBAC alone says this.
    if error.reason is Reason.FORBIDDEN and f" cannot {verb} resource " in error.message:
        return _forbidden(verb, plural, namespace)
    if error.status == HTTPStatus.NOT_FOUND and error.reason is not Reason.OBJECT_NOT_FOUND:
        return StorageError(Reason.NOT_SUPPORTED, _NOT_INSTALLED)
    if _UNKNOWN_FIELD in error.message:
        return StorageError(Reason.NOT_SUPPORTED, f"{_TOO_OLD} ({error.message})")
    if error.outcome is Outcome.UNKNOWN and verb == "create":
        message = f"{error.message}; it may be there: look with kubectl ebs move --list"
        return KubeError(error.reason, message, status=error.status, outcome=error.outcome)
    return error


def _forbidden(verb: str, plural: str, namespace: str) -> StorageError:
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    return StorageError(
        Reason.FORBIDDEN,
        f'you need the verb "{verb}" on {plural} {where}: have somebody give you the ClusterRole '
        f"{ROLE} there",
    )
