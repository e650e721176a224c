"""VolumeAttributesClasses: what of a volume may change while it is in use, by name."""

from provisioner.model.meta import KubeObject


class VolumeAttributesClass(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A VolumeAttributesClass; the API server lets nobody change its parameters.

    Source: Kubernetes 1.36 storage.k8s.io/v1 (GA since 1.34).
    """

    driver_name: str = ""
    parameters: dict[str, str] | None = None
