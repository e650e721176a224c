"""Both webhook configurations: which authorities they carry.

They are not ours: somebody applies the manifests, and may patch them. Of each webhook we write one
field, ``caBundle``, by server-side apply, addressed by the webhook's name.

A write names the version that was read, and the caller reads the Secret after the configurations.
So a replica that is behind never overwrites a newer bundle with an old one: the newer write has
changed the version, or has been read.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.informer import Informer
from provisioner.kube.resources import (
    MUTATING_CONFIGURATIONS,
    VALIDATING_CONFIGURATIONS,
    Resource,
)
from provisioner.metrics import SharedMetrics
from provisioner.model.errors import KubeError, Reason
from provisioner.model.webhook_configuration import WebhookConfiguration
from webhook.certificates import issuing
from webhook.certificates.issuing import Authority
from webhook.model.review import Json

FIELD_MANAGER = "ebs-webhook"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """One configuration as it was read; ``version`` is "" if it is not there.

    Attributes:
        resource: its kind.
        version: its resourceVersion.
        webhooks: its entries.
    """

    resource: Resource[WebhookConfiguration]
    version: str = ""
    webhooks: Sequence[Json] = field(default=(), repr=False)

    @property
    def bundles(self) -> list[bytes]:
        """What each webhook is trusted by; b"" for nothing."""
        return [_bundle_of(webhook) for webhook in self.webhooks]


class Configurations:
    """The two configurations of one name.

    Args:
        client: to the API server.
        name: of both.
    """

    def __init__(self, client: KubeClient, *, name: str) -> None:
        self._client = client
        self._name = name
        self._missed: set[str] = set()

    def informers(self, metrics: SharedMetrics) -> list[Informer[WebhookConfiguration]]:
        """They tell of changes; what counts is read live."""
        mine = f"metadata.name={self._name}"
        return [
            Informer(self._client, kind, metrics, field_selector=mine)
            for kind in (MUTATING_CONFIGURATIONS, VALIDATING_CONFIGURATIONS)
        ]

    async def read(self) -> tuple[Registered, ...]:
        """What is there now; read this first, then the Secret, then ``publish``.

        Raises:
            KubeError: one of them cannot be read.
        """
        mutating = await self._find(MUTATING_CONFIGURATIONS)
        return mutating, await self._find(VALIDATING_CONFIGURATIONS)

    async def publish(self, found: Sequence[Registered], bundle: bytes) -> None:
        """Write the bundle where it is not yet.

        Raises:
            KubeError: CONFLICT when one has changed since it was read.
        """
        text = base64.b64encode(bundle).decode()
        for each in found:
            if all(carried == bundle for carried in each.bundles):
                continue
            kind = each.resource
            body: Json = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": self._name, "resourceVersion": each.version},
                "webhooks": [
                    {"name": webhook["name"], "clientConfig": {"caBundle": text}}
                    for webhook in each.webhooks
                ],
            }
            await self._client.patch(
                kind, self._name, body, kind=Patch.APPLY, manager=FIELD_MANAGER
            )
            log.info("published the CA bundle", kind=kind.kind, name=self._name)

    async def _find(self, kind: Resource[WebhookConfiguration]) -> Registered:
        try:
            found = await self._client.get(kind, self._name)
        except KubeError as error:
            if error.reason is not Reason.OBJECT_NOT_FOUND:
                raise
            self._miss(kind)
            return Registered(kind)
        self._missed.discard(kind.kind)
        return Registered(kind, found.metadata.resource_version, found.webhooks or ())

    def _miss(self, kind: Resource[WebhookConfiguration]) -> None:
        """Nobody asks us then, and nobody's trust is at stake."""
        if kind.kind not in self._missed:
            self._missed.add(kind.kind)
            log.warning("the webhook configuration does not exist", kind=kind.kind, name=self._name)


def authorities_in(found: Sequence[Registered]) -> list[Authority]:
    """All authorities that some webhook is trusted by, each as often as it is found."""
    bundles = (bundle for each in found for bundle in each.bundles)
    return [authority for bundle in bundles for authority in issuing.authorities(bundle)]


def trusted_by_all(found: Sequence[Registered], fingerprints: Iterable[str]) -> set[str]:
    """Those of the authorities that every webhook is trusted by; all, if there is no webhook."""
    bundles = [bundle for each in found for bundle in each.bundles]
    known = [{a.fingerprint for a in issuing.authorities(bundle)} for bundle in bundles]
    return {each for each in fingerprints if all(each in trusted for trusted in known)}


def _bundle_of(webhook: Json) -> bytes:
    return base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or "")
